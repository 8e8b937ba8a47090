"""Everything a run's future depends on, as it was between two iterations."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from entity_encoder.agents.saved import restore_weights
from entity_encoder.spaces import space_to_dict
from entity_encoder.version import __version__

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Snapshot", "capture", "describe", "restore"]

#: Counters of the agent that are saved as they are.
COUNTERS = ("steps", "iteration", "seconds", "best_return")


@dataclass(frozen=True)
class Snapshot:
    """Copies that training does not change.

    Attributes:
        weights: Parameters and buffers of the policy.
        state: Everything else.
        about: What a checkpoint says of itself, ready for JSON.
    """

    weights: dict[str, Tensor]
    state: dict[str, Any]
    about: dict[str, Any]


def capture(agent: PPO) -> Snapshot:
    """Copy the state of an agent; tensors stay on their devices."""
    own = {
        "generators": {name: g.get_state() for name, g in agent.generators.items()},
        "environments": agent.envs.get_state() if agent.started else None,
        "memory": agent.collector.state,
        "episodes": agent.episodes.get_state(),
        "reward_scale": agent.reward_scale.state_dict(),
    }
    state = {
        "optimiser": agent.optimiser.state_dict(),
        "device": agent.device.type,
        "ranks": [own],  # what each process has for itself
        **{name: getattr(agent, name) for name in COUNTERS},
    }
    weights = {name: x.detach().clone() for name, x in agent.policy.state_dict().items()}
    return Snapshot(weights, _copy(state), describe(agent))


def describe(agent: PPO) -> dict[str, Any]:
    """Return what a checkpoint says of itself."""
    return {
        "step": agent.steps,
        "iteration": agent.iteration,
        "env": agent.env_description,
        "schema": agent.policy.schema.to_dict(),
        "own_schema": agent.policy.own_schema,
        "action_space": space_to_dict(agent.policy.action_space),
        "config": agent.config.to_dict(),
        "versions": {
            "entity-encoder": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def restore(
    agent: PPO, weights: Mapping[str, Tensor], state: Mapping[str, Any], *, rank: int
) -> list[str]:
    """Bring an agent into a saved state.

    Args:
        agent: Of the same policy and kind of environment.
        weights: Of the policy.
        state: From `capture`.
        rank: Which of the processes that were saved the agent continues.

    Returns:
        What could not be continued exactly, in words; empty when the future is bit-equal.
    """
    restore_weights(agent.policy, weights)
    _restore_optimiser(agent.optimiser, state["optimiser"])
    for name in COUNTERS:
        setattr(agent, name, state[name])
    agent.started = False
    if rank >= len(state["ranks"]):
        agent.reward_scale.load_state_dict(
            _fitting(agent.reward_scale, state["ranks"][0]["reward_scale"])
        )
        _reseed(agent)
        return [f"process {rank} begins new episodes: there were fewer processes"]
    own = state["ranks"][rank]
    agent.reward_scale.load_state_dict(_fitting(agent.reward_scale, own["reward_scale"]))
    agent.episodes.set_state(own["episodes"], agent.envs.num_envs)
    notes = []
    if state["device"] == agent.device.type:
        for name, generator in agent.generators.items():
            generator.set_state(own["generators"][name].cpu())
    else:
        notes.append(f"random numbers begin anew on {agent.device.type}")
        _reseed(agent)
    saved = own["environments"]
    if saved is None:
        return notes
    if len(saved["ended"]) == agent.envs.num_envs and agent.envs.set_state(saved):
        agent.started = True
        memory = own["memory"]
        agent.collector.state = None if memory is None else memory.to(agent.device, copy=True)
    else:
        notes.append(
            "environments begin new episodes: they offer no get_state and set_state, or their "
            "number changed"
        )
        agent.collector.state = agent.policy.initial_state(agent.envs.num_envs)
        agent.episodes.forget_unfinished()
    return notes


def _reseed(agent: PPO) -> None:
    """Draw other random numbers than the run has used so far."""
    for i, generator in enumerate(agent.generators.values()):
        generator.manual_seed(agent.config.seed + 7919 * (agent.steps + i + agent.ranks.rank))


def _restore_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load moments and step counts; how steps are computed stays as this machine needs it.

    The learning rate stays too: every update sets it anew, and a captured graph reads its tensor.
    """
    ways = [
        {name: group[name] for name in ("fused", "foreach", "capturable", "lr")}
        for group in optimiser.param_groups
    ]
    optimiser.load_state_dict(_copy(dict(state)))
    for group, way in zip(optimiser.param_groups, ways, strict=True):
        group.update(way)


def _fitting(module: torch.nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop what belongs to another number of environments."""
    own = module.state_dict()
    return {k: state[k] if state[k].shape == own[k].shape else own[k] for k in own}


def _copy(value: Any) -> Any:
    """Copy containers and tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copy(part) for part in value)
    return value
