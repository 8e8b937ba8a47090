"""Action masks for MaskablePPO, read from the observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from entity_encoder.observation import as_mask
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["ActionMasks", "action_masks"]


def action_masks(
    space: spaces.Space[Any], schema: EntitySchema, observation: Mapping[str, Any]
) -> np.ndarray:
    """Return which actions are legal, in the flat form that MaskablePPO wants.

    The observation's `action_mask` counts, and for `SelectEntity` and `PerEntity` the presence of
    targets. An absent actor of `PerEntity` keeps its first choice alone: probability 1, entropy 0
    and no gradient, as if it did not act.

    Args:
        space: Action space of one environment.
        schema: What the observation contains.
        observation: With leading dimensions (...) of any number.

    Returns:
        (..., n) bool; for MultiDiscrete n is sum(nvec), for MultiBinary 2 per bit.

    Raises:
        ValueError: When some environment has no legal action, which MaskablePPO would silently
            take for a free choice among all.
    """
    legal = _legal(space, schema, observation)
    stuck = np.argwhere(~_decisions(space, legal).any(axis=-1))
    if len(stuck):
        place = f"environment {stuck[0][0]}" if legal.ndim > 1 else "the environment"
        raise ValueError(
            f"action_mask must leave at least one legal choice for every decision, got none in "
            f"{place}, decision {stuck[0][-1]}; MaskablePPO would choose among all"
        )
    return legal


class ActionMasks(gymnasium.Wrapper):
    """Give an environment the method `action_masks()`, which MaskablePPO calls.

    Args:
        env: Environment whose observations hold `action_mask`, or whose action space is a
            `SelectEntity` or `PerEntity`.
        schema: What the observation contains; default: the environment's `entity_schema`, or read
            from its space.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], schema: EntitySchema | None = None) -> None:
        super().__init__(env)
        if schema is None and env.has_wrapper_attr("entity_schema"):
            schema = env.get_wrapper_attr("entity_schema")
        self._schema = schema or EntitySchema.from_space(env.observation_space)
        self._observation: Mapping[str, Any] = {}

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset and remember the observation."""
        self._observation, info = self.env.reset(**options)
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and remember the observation."""
        self._observation, reward, terminated, truncated, info = self.env.step(action)
        return self._observation, reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Return the legal actions of the current state; see the function of this name."""
        return action_masks(self.env.action_space, self._schema, self._observation)


def _legal(
    space: spaces.Space[Any], schema: EntitySchema, observation: Mapping[str, Any]
) -> np.ndarray:
    given = _read(observation, "action_mask")
    if isinstance(space, SelectEntity):
        there = _presence(schema, observation, space.group)
        return there if given is None else there & given
    if isinstance(space, PerEntity):
        return _per_entity(space, schema, observation, given)
    if given is None:
        raise ValueError(
            f"observation must hold the key 'action_mask' for {space}, got {list(observation)}; "
            "without illegal actions use PPO"
        )
    if isinstance(space, spaces.MultiBinary):  # columns "off" and "on" of every bit
        return np.stack([np.ones_like(given), given], axis=-1).reshape(*given.shape[:-1], -1)
    if isinstance(space, spaces.MultiDiscrete) and given.shape[-1] != space.nvec.sum():
        given = given.reshape(*given.shape[:-2], -1)  # (..., decisions, choices)
    return given


def _per_entity(
    space: PerEntity,
    schema: EntitySchema,
    observation: Mapping[str, Any],
    given: np.ndarray | None,
) -> np.ndarray:
    actors = _presence(schema, observation, space.group)
    shape = (*actors.shape, space.choices)
    table = np.ones(shape, dtype=bool) if given is None else given.reshape(shape).copy()
    if space.target is not None:
        table[..., space.n :] &= _presence(schema, observation, space.target)[..., None, :]
    table[~actors] = np.arange(space.choices) == 0
    return table.reshape(*actors.shape[:-1], -1)


def _presence(schema: EntitySchema, observation: Mapping[str, Any], name: str) -> np.ndarray:
    group = schema.group(name)
    if group.mask_key is None:
        assert group.presence is not None
        column = np.asarray(observation[name])[..., group.features.index(group.presence)]
        return column > 0.5
    mask = _read(observation, group.mask_key)
    assert mask is not None
    return mask


def _read(observation: Mapping[str, Any], key: str) -> np.ndarray | None:
    if key not in observation:
        return None
    return as_mask(np.asarray(observation[key]), key=key).numpy()


def _decisions(space: spaces.Space[Any], legal: np.ndarray) -> np.ndarray:
    """Cut flat masks into decisions: (..., n) to (..., M, K), illegal where there is no choice."""
    if isinstance(space, spaces.MultiBinary):
        return legal.reshape(*legal.shape[:-1], -1, 2)
    if not isinstance(space, spaces.MultiDiscrete):
        return legal[..., None, :]
    sizes = space.nvec.flatten()
    table = np.zeros((*legal.shape[:-1], len(sizes), sizes.max()), dtype=bool)
    for place, part in enumerate(np.split(legal, np.cumsum(sizes)[:-1], axis=-1)):
        table[..., place, : part.shape[-1]] = part
    return table
