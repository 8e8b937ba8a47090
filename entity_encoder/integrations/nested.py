"""Nested observation spaces, which most libraries refuse, with flat keys and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

from entity_encoder.schema import EntitySchema

__all__ = ["FlattenKeys", "flatten_keys", "flatten_space", "unflatten_keys"]


def flatten_keys(observation: Mapping[str, Any], *, separator: str = ".") -> dict[str, Any]:
    """Turn `{"units": {"x": a, "mask": b}}` into `{"units.x": a, "units.mask": b}`."""
    flat: dict[str, Any] = {}
    for key, value in observation.items():
        if isinstance(value, Mapping):
            inner = flatten_keys(value, separator=separator)
            flat.update({f"{key}{separator}{name}": part for name, part in inner.items()})
        else:
            flat[key] = value
    return flat


def unflatten_keys(observation: Mapping[str, Any], *, separator: str = ".") -> dict[str, Any]:
    """Undo `flatten_keys`."""
    nested: dict[str, Any] = {}
    for key, value in observation.items():
        *path, last = key.split(separator)
        place = nested
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return nested


def flatten_space(space: spaces.Dict, *, separator: str = ".") -> spaces.Dict:
    """Return the space of what `flatten_keys` makes of its observations.

    Raises:
        ValueError: When a key already holds the separator.
    """
    parts: dict[str, spaces.Space[Any]] = {}
    for key, part in space.spaces.items():
        if separator in key:
            raise ValueError(f"keys must not hold the separator {separator!r}, got {key!r}")
        if isinstance(part, spaces.Dict):
            inner = flatten_space(part, separator=separator)
            parts.update({f"{key}{separator}{name}": sub for name, sub in inner.items()})
        else:
            parts[key] = part
    return spaces.Dict(parts)


class FlattenKeys(gymnasium.ObservationWrapper):
    """Give an environment with nested observations flat keys.

    Where a table stands beside a key "mask", as in `{"units": {"x": ..., "mask": ...}}`, that is
    taken for its mask: `entity_schema` says so to every integration.

    Args:
        env: Environment with a Dict space.
        separator: Put between the names of a path.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, separator: str = ".") -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        self.separator = separator
        self.observation_space = flatten_space(env.observation_space, separator=separator)

    @property
    def entity_schema(self) -> EntitySchema:
        """What the flat observation contains."""
        space = self.observation_space
        assert isinstance(space, spaces.Dict)
        masks = {}
        for key, part in space.spaces.items():
            prefix, _, _ = key.rpartition(self.separator)
            mask = f"{prefix}{self.separator}mask" if prefix else ""
            if mask in space.spaces and len(part.shape or ()) == 2:
                masks[key] = mask
        return EntitySchema.from_space(space, masks=masks)

    def observation(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Flatten the keys."""
        return flatten_keys(observation, separator=self.separator)
