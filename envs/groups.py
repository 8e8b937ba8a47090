"""What a task declares about its observation: groups of entities and global features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.schema import EgoFrame, EntityGroup, EntitySchema, GlobalFeature

__all__ = ["Global", "Group", "check_option", "make_schema", "make_space"]


@dataclass(frozen=True)
class Group:
    """One kind of entity in a task's observation.

    Args:
        name: Key of the features in the observation; the mask is `<name>_mask`.
        slots: Capacity.
        features: Bounds (low, high) of each column by name. 0 must lie between them, because an
            absent entity's row is 0.
        positions: Columns that are coordinates of a point.
        directions: Columns that are components of vectors, two per vector.
        angles: Columns that are angles in radians.
        state: Tensors of the state that hold one row per slot, shape (E, slots, ...). They are
            brought into one common random order when an episode begins.
        critic_only: Whether only the value function may see the group.
    """

    name: str
    slots: int
    features: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    positions: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    angles: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    critic_only: bool = False


@dataclass(frozen=True)
class Global:
    """A vector that belongs to the whole state: `size` numbers within [low, high]."""

    name: str
    size: int = 1
    low: float = 0.0
    high: float = 1.0
    critic_only: bool = False


def make_space(
    groups: Sequence[Group], global_features: Sequence[Global], action_mask: Sequence[int] | None
) -> spaces.Dict:
    """Build the observation space of one environment.

    Args:
        groups: The kinds of entities.
        global_features: Vectors of the whole state.
        action_mask: Shape of the key `action_mask`, or None for no such key.
    """
    keys: dict[str, spaces.Space[Any]] = {}
    for group in groups:
        low, high = (
            np.tile(np.asarray(side, np.float32), (group.slots, 1))  # (slots, F)
            for side in (zip(*group.features.values(), strict=True) if group.features else ((), ()))
        )
        keys[group.name] = spaces.Box(low, high, dtype=np.float32)
        keys[f"{group.name}_mask"] = spaces.MultiBinary(group.slots)
    for item in global_features:
        keys[item.name] = spaces.Box(item.low, item.high, (item.size,), np.float32)
    if action_mask is not None:
        shape = list(action_mask)
        keys["action_mask"] = spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    return spaces.Dict(keys)


def make_schema(
    groups: Sequence[Group],
    global_features: Sequence[Global],
    frame: EgoFrame | None,
    action_mask: bool,
    grid: float | None = None,
) -> EntitySchema:
    """Build the schema, which says what columns mean and whose frame to use."""
    return EntitySchema(
        groups=tuple(
            EntityGroup(
                group.name,
                group.slots,
                tuple(group.features),
                mask_key=f"{group.name}_mask",
                positions=group.positions,
                directions=group.directions,
                angles=group.angles,
                critic_only=group.critic_only,
            )
            for group in groups
        ),
        globals=tuple(GlobalFeature(g.name, g.size, g.critic_only) for g in global_features),
        frame=frame,
        grid=grid,
        action_masks=("action_mask",) if action_mask else (),
    )


def check_option(name: str, value: int, low: int, high: int) -> int:
    """Return a whole number that a task takes as an option.

    Raises:
        ValueError: When it is no whole number or lies outside low, ..., high.
    """
    if isinstance(value, bool) or int(value) != value or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
    return int(value)
