"""gymnasium's `Sequence` spaces: sets of any length in a fixed number of slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector.utils import iterate

from entity_encoder.envs.bridges.capacity import Capacity, Priority
from entity_encoder.schema import EntitySchema

__all__ = ["SequenceToEntities", "element_box", "flatten_elements", "flatten_sequence"]

ALONE = "entity"  # name of the group when the observation is one Sequence


class SequenceToEntities(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Turn every `Sequence` of an observation into a group of entities with a mask.

    The observation may be a `Sequence`, which becomes the group `entity`, or a `Dict` with some;
    other keys stay as they are. Elements are flattened, discrete ones into one-hot columns. Wrap
    before vectorising: vector environments batch a Sequence into tuples and cannot share its
    memory.

    **More elements than slots**: the rule is `priority`, never chance. `truncated_entities` counts
    what was left out, and the first time a warning says so.

    Args:
        env: The environment.
        max_entities: Slots, for all sequences or by key.
        priority: "first" or "last" delivered, or a function of the flattened elements (n, F) that
            returns scores (n,), of which the highest stay; nearest first is
            `lambda rows: -np.hypot(rows[:, 0], rows[:, 1])`.
        **schema: Passed to `EntitySchema.from_space`: `features`, `positions`, `frame`, ...

    Attributes:
        entity_schema: What the observation contains.

    Raises:
        ValueError: Without a Sequence in the observation, or for a key that is none.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        max_entities: int | Mapping[str, int],
        *,
        priority: Priority = "first",
        **schema: Any,
    ) -> None:
        RecordConstructorArgs.__init__(self, max_entities=max_entities, priority=priority, **schema)
        gymnasium.Wrapper.__init__(self, env)
        space = env.observation_space
        self._alone = isinstance(space, spaces.Sequence)
        keys: Mapping[str, spaces.Space[Any]]
        if isinstance(space, spaces.Sequence):
            keys = {ALONE: space}
        elif isinstance(space, spaces.Dict):
            keys = space.spaces
        else:
            raise ValueError(f"observation_space must be a Sequence or a Dict, got {space}")
        self._sequences = {k: s for k, s in keys.items() if isinstance(s, spaces.Sequence)}
        if not self._sequences:
            raise ValueError(f"observation_space must hold a Sequence, got {space}")
        slots = (
            dict(max_entities)
            if isinstance(max_entities, Mapping)
            else dict.fromkeys(self._sequences, max_entities)
        )
        if slots.keys() != self._sequences.keys():
            raise ValueError(
                f"max_entities must name the sequences {list(self._sequences)}, got {list(slots)}"
            )
        self._capacities = {key: Capacity(key, slots[key], priority) for key in self._sequences}
        parts: dict[str, spaces.Space[Any]] = {}
        for key, part in keys.items():
            if isinstance(part, spaces.Sequence):
                parts[key] = element_box(part.feature_space, slots[key])
                parts[f"{key}_mask"] = spaces.MultiBinary(slots[key])
            else:
                parts[key] = part
        self.observation_space = spaces.Dict(parts)
        self.entity_schema = EntitySchema.from_space(self.observation_space, **schema)

    @property
    def truncated_entities(self) -> int:
        """Entities left out so far because there was no slot."""
        return sum(capacity.truncated for capacity in self._capacities.values())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observation(observation), info

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(observation), reward, terminated, truncated, info

    def observation(self, observation: Any) -> dict[str, np.ndarray]:
        """Give every sequence its slots."""
        given = {ALONE: observation} if self._alone else observation
        result = {}
        for key, value in given.items():
            if key not in self._sequences:
                result[key] = value
                continue
            rows = flatten_sequence(self._sequences[key], value)
            result[key], result[f"{key}_mask"] = self._capacities[key].pad(rows)
        return result


def flatten_sequence(space: spaces.Sequence, value: Any) -> np.ndarray:
    """Return the elements of a sequence as rows, (n, F) float32."""
    if space.stack and not isinstance(space.feature_space, spaces.Box):
        value = list(iterate(space.stacked_feature_space, value))
    return flatten_elements(space.feature_space, value)


def flatten_elements(space: spaces.Space[Any], elements: Any) -> np.ndarray:
    """Flatten elements of a space into rows, (n, F) float32."""
    width = flatten_space(space).shape[0]  # type: ignore[index]
    if isinstance(space, spaces.Box):
        return np.asarray(elements, np.float32).reshape(len(elements), width)
    rows = [np.asarray(flatten(space, element), np.float32) for element in elements]
    return np.stack(rows) if rows else np.zeros((0, width), np.float32)


def element_box(space: spaces.Space[Any], slots: int) -> spaces.Box:
    """Return the Box of `slots` flattened elements; its bounds hold the 0 of absent ones."""
    flat = flatten_space(space)
    if not isinstance(flat, spaces.Box):
        raise ValueError(f"elements must have a fixed size, got {space}")
    low = np.minimum(flat.low, 0).astype(np.float32)
    high = np.maximum(flat.high, 0).astype(np.float32)
    return spaces.Box(np.tile(low, (slots, 1)), np.tile(high, (slots, 1)), dtype=np.float32)
