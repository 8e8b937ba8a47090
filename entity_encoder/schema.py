"""What an observation contains: groups of entities, global features, masks, a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.errors import nearest, require_at_least

__all__ = ["EgoFrame", "EntityGroup", "EntitySchema", "GlobalFeature"]


def _strings(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


@dataclass(frozen=True)
class EntityGroup:
    """One kind of entity: a table of `slots` rows and `len(features)` columns.

    Args:
        name: Key of the table in the observation, shape (..., slots, features).
        slots: Capacity, the number of rows in the observation space. No weight depends on it.
        features: Column names. May be empty: such entities differ only in how many there are.
        mask_key: Key of the mask, shape (..., slots), True where an entity is there.
        presence: Name of the column that says whether the row is an entity (> 0.5), for
            environments that deliver the mask inside the features. Used when `mask_key` is None.
        positions: Columns that are coordinates of a point. Frames, rotary and relative positions
            read them, and only them.
        directions: Columns that are components of vectors (velocity, heading vector), two per
            vector; a rotating frame turns them.
        angles: Columns that are angles in radians; a rotating frame subtracts its own.
        categories: `(column, count)` pairs: integer columns in [0, count) that are embedded.
        critic_only: True when only the value function may see this group.
    """

    name: str
    slots: int
    features: tuple[str, ...] = ()
    mask_key: str | None = None
    presence: str | None = None
    positions: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    angles: tuple[str, ...] = ()
    categories: tuple[tuple[str, int], ...] = ()
    critic_only: bool = False

    def __post_init__(self) -> None:
        """Refuse columns that do not exist.

        Raises:
            ValueError: When a named column is not among `features`, a size does not fit, or the
                group has no mask.
        """
        require_at_least(0, slots=self.slots)
        for kind in ("features", "positions", "directions", "angles"):
            object.__setattr__(self, kind, _strings(getattr(self, kind)))
        categories = tuple((str(name), int(count)) for name, count in self.categories)
        object.__setattr__(self, "categories", categories)
        if len(set(self.features)) != len(self.features):
            raise ValueError(f"features of {self.name!r} must be unique, got {self.features}")
        presence = () if self.presence is None else (self.presence,)
        named = {
            "positions": self.positions,
            "directions": self.directions,
            "angles": self.angles,
            "categories": tuple(name for name, _ in categories),
            "presence": presence,
        }
        for kind, names in named.items():
            for name in names:
                if name not in self.features:
                    raise ValueError(
                        f"{kind} of group {self.name!r} must name columns among "
                        f"{list(self.features)}, got {name!r}{nearest(name, self.features)}"
                    )
        for name, count in categories:
            if count < 1:
                raise ValueError(
                    f"category {name!r} of group {self.name!r} must have at least 1 value, "
                    f"got {count}"
                )
        if len(self.directions) % 2:
            raise ValueError(
                f"directions of group {self.name!r} must come in pairs, got {self.directions}"
            )
        if self.mask_key is None and self.presence is None:
            raise ValueError(
                f"group {self.name!r} must have a mask_key or a presence column, got neither"
            )

    def columns(self, names: Sequence[str]) -> list[int]:
        """Return the column index of each name."""
        return [self.features.index(name) for name in names]


@dataclass(frozen=True)
class GlobalFeature:
    """A vector of `size` numbers that belongs to the whole state, shape (..., size)."""

    name: str
    size: int
    critic_only: bool = False

    def __post_init__(self) -> None:
        """Refuse a negative size.

        Raises:
            ValueError: When `size` is negative.
        """
        require_at_least(0, size=self.size)


@dataclass(frozen=True)
class EgoFrame:
    """The frame of reference of one entity: the single member of `group`.

    Its position is subtracted from the position columns of every group that declares some. With
    `heading`, positions and directions are also rotated so that it looks along the first axis.
    Where the entity is absent, the coordinates stay as they are.

    Args:
        group: Group that holds the ego entity; at most one may be present.
        heading: Nothing to only subtract; one column, an angle in radians; or two columns, a
            direction vector of any length (cosine and sine for a unit vector).
    """

    group: str
    heading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the number of heading columns.

        Raises:
            ValueError: With more than two.
        """
        object.__setattr__(self, "heading", _strings(self.heading))
        if len(self.heading) > 2:
            raise ValueError(
                "heading must be (), an angle (one column) or a direction vector (two columns), "
                f"got {self.heading}"
            )


@dataclass(frozen=True)
class EntitySchema:
    """Everything the encoder must know about an observation; immutable and JSON-serialisable.

    Args:
        groups: The kinds of entities, in the order in which their slots are concatenated.
        globals: Vectors that describe the whole state.
        frame: Frame of reference in which positions are expressed, or None for as delivered.
        action_masks: Keys that hold legal actions; never fed to the encoder.
        grid: Length of a step, where positions are places on a grid and neighbours decide; the
            encoder then sees relative positions by itself (`position_encoding="auto"`).
    """

    groups: tuple[EntityGroup, ...]
    globals: tuple[GlobalFeature, ...] = ()
    frame: EgoFrame | None = None
    action_masks: tuple[str, ...] = field(default=())
    grid: float | None = None

    def __post_init__(self) -> None:
        """Check names against each other.

        Raises:
            ValueError: When there is no group, a name stands twice, or the frame does not fit.
        """
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "globals", tuple(self.globals))
        object.__setattr__(self, "action_masks", _strings(self.action_masks))
        if not self.groups:
            raise ValueError("groups must hold at least one EntityGroup, got none")
        names = [group.name for group in self.groups] + [item.name for item in self.globals]
        names += {group.mask_key for group in self.groups if group.mask_key is not None}
        if len(set(names)) != len(names):
            raise ValueError(f"names of groups, globals and masks must be unique, got {names}")
        self._check_positions()
        if self.grid is not None:
            self._check_grid(float(self.grid))
        if self.frame is not None:
            self._check_frame(self.frame)

    def _check_positions(self) -> None:
        placed = [group for group in self.groups if group.positions]
        for group in placed[1:]:
            if len(group.positions) != len(placed[0].positions):
                raise ValueError(
                    f"positions must have one length in every group, got {placed[0].positions} in "
                    f"{placed[0].name!r} and {group.positions} in {group.name!r}"
                )

    def _check_grid(self, grid: float) -> None:
        object.__setattr__(self, "grid", grid)
        if not 0 < grid < float("inf"):
            raise ValueError(f"grid must be a positive length or None, got {grid}")
        if not any(group.positions for group in self.groups):
            raise ValueError("grid needs position columns, got none; declare `positions`")

    def _check_frame(self, frame: EgoFrame) -> None:
        ego = self.group(frame.group)
        if not ego.positions:
            raise ValueError(
                f"the frame's group {ego.name!r} must declare its position columns, got none; "
                f'pass positions={{"{ego.name}": ("x", "y")}}'
            )
        for name in frame.heading:
            if name not in ego.features:
                raise ValueError(
                    f"heading must name columns of {ego.name!r} among {list(ego.features)}, "
                    f"got {name!r}{nearest(name, ego.features)}"
                )
        for group in self.groups:
            if frame.heading and len(group.positions) not in (0, 2):
                raise ValueError(
                    f"a rotating frame needs two position columns, got {group.positions} in "
                    f"{group.name!r}"
                )

    @property
    def slots(self) -> int:
        """Total number of entity slots over all groups."""
        return sum(group.slots for group in self.groups)

    @property
    def slices(self) -> dict[str, slice]:
        """Where each group's slots lie among the concatenated ones."""
        result, start = {}, 0
        for group in self.groups:
            result[group.name] = slice(start, start + group.slots)
            start += group.slots
        return result

    @property
    def has_critic_only(self) -> bool:
        """Whether some group or global feature is for the value function alone."""
        return any(group.critic_only for group in self.groups) or any(
            item.critic_only for item in self.globals
        )

    def group(self, name: str) -> EntityGroup:
        """Return the group called `name`.

        Raises:
            ValueError: When there is none, with the nearest name.
        """
        for group in self.groups:
            if group.name == name:
                return group
        names = [group.name for group in self.groups]
        raise ValueError(f"group must be one of {names}, got {name!r}{nearest(name, names)}")

    @classmethod
    def from_space(
        cls,
        space: spaces.Space[Any],
        *,
        features: Mapping[str, Sequence[str]] | None = None,
        positions: Mapping[str, Sequence[str]] | None = None,
        directions: Mapping[str, Sequence[str]] | None = None,
        angles: Mapping[str, Sequence[str]] | None = None,
        categories: Mapping[str, Mapping[str, int]] | None = None,
        presence: Mapping[str, str] | None = None,
        masks: Mapping[str, str] | None = None,
        frame: EgoFrame | None = None,
        critic_only: Sequence[str] = (),
        grid: float | None = None,
    ) -> EntitySchema:
        """Read a schema from a `gymnasium.spaces.Dict` with flat keys.

        Args:
            space: The observation space of one environment (not the batched one).
            features: Column names per group; default `f0, f1, ...`.
            positions: Columns that are coordinates, per group.
            directions: Columns that are vector components, per group.
            angles: Columns that are angles in radians, per group.
            categories: Integer columns with their number of values, per group.
            presence: Presence column per group, instead of a mask key.
            masks: Mask key per group, where it is not `<group>_mask`.
            frame: Frame of reference.
            critic_only: Groups and global features that only the value function may see.
            grid: Length of a step, where positions are places on a grid.

        Raises:
            ValueError: For a space that cannot be read: shows the key, what was found there and
                the nearest thing that would work.
        """
        from entity_encoder.schema_reading import read_space

        columns = {
            "features": features,
            "positions": positions,
            "directions": directions,
            "angles": angles,
            "categories": categories,
        }
        schema = read_space(
            space,
            columns=columns,
            presence=presence or {},
            masks=masks or {},
            frame=frame,
            critic_only=critic_only,
        )
        return replace(schema, grid=grid)

    def space(self, low: float = -np.inf, high: float = np.inf) -> spaces.Dict:
        """Build an observation space with these groups, globals and masks (not action masks)."""
        keys: dict[str, spaces.Space[Any]] = {}
        for group in self.groups:
            shape = (group.slots, len(group.features))
            keys[group.name] = spaces.Box(low, high, shape, np.float32)
            if group.mask_key is not None:
                keys[group.mask_key] = spaces.MultiBinary(group.slots)
        for item in self.globals:
            keys[item.name] = spaces.Box(low, high, (item.size,), np.float32)
        return spaces.Dict(keys)

    def with_slots(self, slots: Mapping[str, int]) -> EntitySchema:
        """Return the same schema with other capacities; weights fit both."""
        content = self.to_dict()
        for group in content["groups"]:
            group["slots"] = int(slots.get(group["name"], group["slots"]))
        return EntitySchema.from_dict(content)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, dicts, strings and numbers, ready for `json.dumps`."""
        content = asdict(self)
        for group in content["groups"]:
            for key, value in group.items():
                if isinstance(value, tuple):
                    group[key] = [list(v) if isinstance(v, tuple) else v for v in value]
        content["groups"] = list(content["groups"])
        content["globals"] = list(content["globals"])
        content["action_masks"] = list(content["action_masks"])
        if content["frame"] is not None:
            content["frame"]["heading"] = list(content["frame"]["heading"])
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> EntitySchema:
        """Rebuild a schema from `to_dict`'s result."""
        frame = content.get("frame")
        groups: list[dict[str, Any]] = [
            {k: tuple(v) if isinstance(v, list) else v for k, v in group.items()}
            for group in content["groups"]
        ]
        return cls(
            groups=tuple(EntityGroup(**group) for group in groups),
            globals=tuple(GlobalFeature(**item) for item in content.get("globals", ())),
            frame=None if frame is None else EgoFrame(**frame),
            action_masks=tuple(content.get("action_masks", ())),
            grid=content.get("grid"),
        )

    def check(self, observation: Mapping[str, Any]) -> None:
        """Check one observation, or a batch, against the contract.

        Raises:
            ValueError: Naming the environment (index over leading dimensions), key and slot.
        """
        from entity_encoder.observation import read_observation

        read_observation(self, observation, check=True)
