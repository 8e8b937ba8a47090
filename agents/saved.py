"""A policy with everything that is needed to build it again, and what its checkpoint must match."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from entity_encoder.agents.checkpoint import Checkpoint, load_checkpoint, unwrapped_names
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import space_from_dict

__all__ = ["check_same_schema", "load_policy", "make_policy", "restore_weights", "show_to"]


def make_policy(
    schema: EntitySchema, action_space: spaces.Space[Any], config: PPOConfig
) -> EntityPolicy:
    """Build the policy that a configuration describes, with weights drawn from its seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return EntityPolicy(
            schema,
            action_space,
            hidden=config.hidden,
            separate_critic=config.separate_critic,
            recurrent=config.recurrent,
            squash=config.squash,
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_layers=config.n_layers,
            d_ff=config.d_ff,
            norm=config.norm,
            activation=config.activation,
            pooling=config.pooling,
            core=config.core,
            count_feature=config.count_feature,
            position_encoding=config.position_encoding,
            position_scale=config.position_scale,
            normalise=config.normalise_observations,
            attention=config.attention,
        )


def load_policy(
    path: str | Path | Checkpoint, *, device: str | torch.device = "cpu"
) -> EntityPolicy:
    """Return the policy of a checkpoint, without an environment.

    Args:
        path: Folder of the checkpoint, or one that was loaded.
        device: Where it shall be; the machine that wrote it may have had another one.

    Raises:
        FileNotFoundError: When there is no checkpoint.
        ValueError: When it is damaged or holds code.
    """
    saved = path if isinstance(path, Checkpoint) else load_checkpoint(path)
    policy = make_policy(
        EntitySchema.from_dict(saved.about["schema"]),
        space_from_dict(saved.about["action_space"]),
        PPOConfig.from_dict(saved.about["config"]),
    )
    policy.own_schema = saved.about.get("own_schema", False)
    restore_weights(policy, saved.weights)
    return policy.to(device)


def show_to(
    policy: EntityPolicy, env: VectorEnv[Any, Any, Any], *, device: str | torch.device = "cpu"
) -> Environments:
    """Let a policy see a vector environment as it saw those it was trained on.

    Raises:
        ValueError: When the environment shows something else, naming the first difference.
    """
    if not policy.own_schema:
        envs = Environments(env, device=device)
        check_same_schema(policy.schema, envs.schema, "this policy")
        return envs
    space = env.single_observation_space
    assert isinstance(space, spaces.Dict)
    shapes = {name: part.shape for name, part in space.spaces.items()}
    slots = {name: shape[0] for name, shape in shapes.items() if shape}
    return Environments(env, device=device, schema=policy.schema.with_slots(slots))


def restore_weights(policy: EntityPolicy, weights: Mapping[str, torch.Tensor]) -> None:
    """Load weights by name; a wrapper's prefixes do not matter, everything else must fit.

    Raises:
        ValueError: When names or shapes differ, naming the first.
    """
    given, own = unwrapped_names(weights), policy.state_dict()
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or unknown:
        raise ValueError(
            f"weights must have the names of this policy, got missing {missing[:3]} and unknown "
            f"{unknown[:3]}; they belong to a policy with other settings"
        )
    for name, value in own.items():
        if given[name].shape != value.shape:
            raise ValueError(
                f"weight {name!r} must have shape {tuple(value.shape)}, got "
                f"{tuple(given[name].shape)}; it belongs to a policy with other settings"
            )
    policy.load_state_dict(given)


def check_same_schema(saved: EntitySchema, found: EntitySchema, what: str) -> None:
    """Compare what a policy learned to see with what an environment shows.

    Capacities may differ: no weight depends on them.

    Raises:
        ValueError: Naming the first difference.
    """
    difference = _difference(_without_slots(saved), _without_slots(found), "schema")
    if difference is not None:
        place, old, new = difference
        raise ValueError(
            f"the environment must show what {what} was trained on, got {place} = {new!r} "
            f"instead of {old!r}"
        )


def _without_slots(schema: EntitySchema) -> dict[str, Any]:
    content = schema.to_dict()
    for group in content["groups"]:
        del group["slots"]
    return content


def _difference(old: Any, new: Any, place: str) -> tuple[str, Any, Any] | None:
    """Return where two JSON values differ first, and what stands there."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        parts = [(f"{place}.{key}", old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        parts = [(f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else (place, old, new)
    found = (_difference(a, b, name) for name, a, b in parts)
    return next((one for one in found if one is not None), None)
