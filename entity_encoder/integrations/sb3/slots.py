"""A saved model in a larger world: other numbers of slots, the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.vec_env import VecEnv

from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["load_with_slots"]

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)


def load_with_slots(
    algorithm: type[Algorithm],
    path: str | Path,
    slots: Mapping[str, int],
    *,
    env: gymnasium.Env[Any, Any] | VecEnv | None = None,
    **options: Any,
) -> Algorithm:
    """Load a saved model for more or fewer slots than it was trained on.

    SB3 fixes the shape of observations with the model. No weight of the encoder or of the entity
    heads depends on it, so the model is loaded with other spaces.

    Args:
        algorithm: PPO, MaskablePPO, DQN, ...
        path: What `model.save` wrote.
        slots: New number of slots of each group that changes.
        env: Environment with that many slots, to go on learning; none is needed to predict.
        **options: Further arguments of `algorithm.load`.

    Raises:
        ValueError: For a group that does not exist, or a model without an entity extractor.

    Example:
        model = load_with_slots(PPO, "model.zip", {"mine": 64})
    """
    data, _, _ = load_from_zip_file(path, custom_objects=options.get("custom_objects"))
    assert data is not None
    policy_kwargs = dict(data["policy_kwargs"])
    extractor = dict(policy_kwargs.get("features_extractor_kwargs") or {})
    schema = extractor.get("schema") or EntitySchema.from_space(data["observation_space"])
    for name in slots:
        schema.group(name)
    wider = schema.with_slots(slots)
    if "schema" in extractor:
        policy_kwargs["features_extractor_kwargs"] = {**extractor, "schema": wider}
    action_space = _resize_action(data["action_space"], slots)
    replaced = {
        **(options.pop("custom_objects", None) or {}),
        "policy_kwargs": policy_kwargs,
        "observation_space": _resize(data["observation_space"], wider, action_space),
        "action_space": action_space,
    }
    return algorithm.load(path, env=env, custom_objects=replaced, **options)


def _resize(
    space: spaces.Dict, schema: EntitySchema, action_space: spaces.Space[Any]
) -> spaces.Dict:
    parts = dict(space.spaces)
    for group in schema.groups:
        parts[group.name] = _resize_part(parts[group.name], group.slots)
        if group.mask_key is not None:
            parts[group.mask_key] = _resize_part(parts[group.mask_key], group.slots)
    for key in schema.action_masks:
        if isinstance(action_space, SelectEntity):
            parts[key] = _resize_part(parts[key], action_space.slots)
        elif isinstance(action_space, PerEntity):
            shape = (action_space.slots, action_space.choices)
            parts[key] = spaces.Box(0, 1, shape, parts[key].dtype)  # type: ignore[arg-type]
    return spaces.Dict(parts)


def _resize_part(space: spaces.Space[Any], slots: int) -> spaces.Space[Any]:
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(slots)
    assert isinstance(space, spaces.Box)
    low, high = space.low.min(axis=0), space.high.max(axis=0)
    shape = (slots, *space.shape[1:])
    return spaces.Box(
        np.broadcast_to(low, shape),
        np.broadcast_to(high, shape),
        dtype=space.dtype.type,
    )


def _resize_action(space: spaces.Space[Any], slots: Mapping[str, int]) -> spaces.Space[Any]:
    if isinstance(space, SelectEntity):
        return SelectEntity(space.group, slots.get(space.group, space.slots))
    if isinstance(space, PerEntity):
        targets = 0 if space.target is None else slots.get(space.target, space.target_slots)
        return PerEntity(
            space.group,
            slots.get(space.group, space.slots),
            space.n,
            target=space.target,
            target_slots=targets,
        )
    return space
