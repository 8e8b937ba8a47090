"""Environments whose observation is one flat vector of entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from entity_encoder.envs.bridges.layout import Layout
from entity_encoder.schema import EgoFrame

__all__ = ["FlatToEntities", "layout_space"]


class FlatToEntities(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Cut a flat observation into groups of entities, as a layout declares it.

    Args:
        env: An environment whose observation is a Box of shape (width,).
        layout: Where everything stands.
        frame: Frame of reference for the encoder.
        action_mask: What says which actions are legal, if something does: a key of `info`, or a
            function of the environment. It becomes the observation's `action_mask`.

    Attributes:
        entity_schema: What the observation contains.

    Example:
        >>> layout = Layout([
        ...     Block("self", 0, features=("x", "y")),
        ...     Block("other", 2, count=3, features=("x", "y", "hp"), presence="hp > 0"),
        ... ])
        >>> layout.split(np.arange(11) % 5)["other_mask"]
        array([1, 1, 0], dtype=int8)

    Raises:
        ValueError: When the observation does not have the layout's width.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        layout: Layout,
        *,
        frame: EgoFrame | None = None,
        action_mask: str | Callable[[gymnasium.Env[Any, Any]], Any] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, layout=layout, frame=frame, action_mask=action_mask)
        gymnasium.Wrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"observation_space must be a Box of shape (width,), got {space}")
        layout.check(space.shape[0])
        self.layout = layout
        self._action_mask = action_mask
        masks = ("action_mask",) if action_mask is not None else ()
        self.entity_schema = layout.schema(frame=frame, action_masks=masks)
        self.observation_space = layout_space(layout, space)
        if action_mask is not None:
            self.observation_space["action_mask"] = _mask_space(env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode."""
        flat, info = self.env.reset(seed=seed, options=options)
        return self._observation(flat, info), info

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        flat, reward, terminated, truncated, info = self.env.step(action)
        return self._observation(flat, info), reward, terminated, truncated, info

    def _observation(self, flat: np.ndarray, info: dict[str, Any]) -> dict[str, np.ndarray]:
        observation = self.layout.split(flat)
        if self._action_mask is None:
            return observation
        if isinstance(self._action_mask, str):
            if self._action_mask not in info:
                raise ValueError(
                    f"info must hold {self._action_mask!r}, the action mask, got keys {list(info)}"
                )
            legal = info[self._action_mask]
        else:
            legal = self._action_mask(self.env)
        return {**observation, "action_mask": np.asarray(legal).astype(np.int8)}


def layout_space(layout: Layout, space: spaces.Box) -> spaces.Dict:
    """Return the space of cut observations; bounds are widened to hold the 0 of absent rows."""
    keys: dict[str, spaces.Space[Any]] = {}
    for name, parts in layout.groups.items():
        with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
            low, high = (
                np.concatenate(
                    [side[p.start : p.stop].reshape(p.count, p.width) for p in parts], axis=1
                ).astype(np.float32)
                for side in (space.low, space.high)
            )
        if parts[0].is_global:
            keys[name] = spaces.Box(low[0], high[0], dtype=np.float32)
        else:
            keys[name] = spaces.Box(np.minimum(low, 0), np.maximum(high, 0), dtype=np.float32)
            keys[f"{name}_mask"] = spaces.MultiBinary(parts[0].count)
    return spaces.Dict(keys)


def _mask_space(space: spaces.Space[Any]) -> spaces.MultiBinary:
    if isinstance(space, spaces.Discrete):
        return spaces.MultiBinary(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and len(set(space.nvec.tolist())) == 1:
        return spaces.MultiBinary([len(space.nvec), int(space.nvec[0])])
    raise ValueError(
        "action_mask needs a Discrete action space or a MultiDiscrete of equal choices, "
        f"got {space}"
    )
