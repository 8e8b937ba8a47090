"""Action spaces that mean something to an entity policy, and spaces written as JSON.

`SelectEntity` and `PerEntity` are ordinary `Discrete` and `MultiDiscrete` spaces to everybody who
does not know them: sampling, seeding, pickling, batching and wrapping work as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.errors import nearest

__all__ = ["PerEntity", "SelectEntity", "space_from_dict", "space_to_dict"]

Seed = int | np.random.Generator | None


class SelectEntity(spaces.Discrete):
    """Point at one entity: the action is a slot of a group.

    A policy gives absent entities probability 0; an `action_mask` of shape (slots,) in the
    observation closes further ones.

    Args:
        group: Name of the group in the observation.
        slots: Its capacity. No weight of a pointer head depends on it.
        seed: Seed or generator for `sample`.

    Example:
        >>> SelectEntity("cherry", 32)
        SelectEntity('cherry', 32)
    """

    def __init__(self, group: str, slots: int, seed: Seed = None) -> None:
        _require_positive("slots", slots)
        self.group = str(group)
        self.slots = int(slots)
        super().__init__(int(slots), seed=seed)

    def __repr__(self) -> str:
        """Show the arguments that rebuild the space."""
        return f"SelectEntity({self.group!r}, {self.slots})"

    def __eq__(self, other: object) -> bool:
        """Compare kind, group and capacity; a plain Discrete is never equal."""
        return isinstance(other, SelectEntity) and _arguments(self) == _arguments(other)


class PerEntity(spaces.MultiDiscrete):
    """Let every entity of a group choose: one choice per slot, absent ones count for nothing.

    Choices 0 to n - 1 are the same for everybody. With `target`, choices n and above point at the
    slots of another group (or the same one): choice n + j is "act on slot j of `target`". So
    `PerEntity("ally", 8, 4, target="enemy", target_slots=10)` is "move in one of 4 directions or
    attack one of 10 enemies", 14 choices for each of 8 allies. Absent targets have probability 0;
    an `action_mask` of shape (slots, choices) in the observation closes further ones, and so says
    which actor may act on which target.

    Args:
        group: Group of the entities that act.
        slots: Its capacity.
        n: Number of choices that point at nobody; may be 0 with `target`.
        target: Group that can be pointed at, or None.
        target_slots: Its capacity.
        seed: Seed or generator for `sample`.

    Attributes:
        choices: n + target_slots, the number of choices of each actor.
    """

    def __init__(
        self,
        group: str,
        slots: int,
        n: int,
        *,
        target: str | None = None,
        target_slots: int = 0,
        seed: Seed = None,
    ) -> None:
        _require_positive("slots", slots)
        if target is None:
            _require_positive("n", n)
            if target_slots:
                raise ValueError(
                    f"target_slots must be 0 without a target group, got {target_slots}; "
                    "pass target='<group>'"
                )
        else:
            _require_positive("target_slots", target_slots)
            if n < 0:
                raise ValueError(f"n must not be negative, got {n}")
        self.group = str(group)
        self.slots = int(slots)
        self.n = int(n)
        self.target = None if target is None else str(target)
        self.target_slots = int(target_slots)
        super().__init__(np.full(self.slots, self.choices, dtype=np.int64), seed=seed)

    @property
    def choices(self) -> int:
        """Number of choices of each actor."""
        return self.n + self.target_slots

    def __repr__(self) -> str:
        """Show the arguments that rebuild the space."""
        shown = f"{self.group!r}, {self.slots}, {self.n}"
        if self.target is not None:
            shown += f", target={self.target!r}, target_slots={self.target_slots}"
        return f"PerEntity({shown})"

    def __eq__(self, other: object) -> bool:
        """Compare kind, groups and sizes; a plain MultiDiscrete is never equal."""
        return isinstance(other, PerEntity) and _arguments(self) == _arguments(other)


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _arguments(space: SelectEntity | PerEntity) -> dict[str, Any]:
    """Return the constructor's arguments, without the seed."""
    if isinstance(space, SelectEntity):
        return {"group": space.group, "slots": space.slots}
    return {
        "group": space.group,
        "slots": space.slots,
        "n": space.n,
        "target": space.target,
        "target_slots": space.target_slots,
    }


_KINDS = (
    SelectEntity,
    PerEntity,
    spaces.Box,
    spaces.Discrete,
    spaces.MultiDiscrete,
    spaces.MultiBinary,
    spaces.Text,
    spaces.Dict,
    spaces.Tuple,
    spaces.OneOf,
    spaces.Sequence,
    spaces.Graph,
)


def space_to_dict(space: spaces.Space[Any]) -> dict[str, Any]:
    """Describe a space in plain dicts, lists, strings and numbers, ready for `json.dumps`.

    Seeds are not kept. Bounds survive exactly, infinite ones as the strings "inf" and "-inf".

    Args:
        space: Any of gymnasium's own spaces, `SelectEntity` or `PerEntity`, nested at will.

    Raises:
        ValueError: For another kind of space.
    """
    if type(space) not in _KINDS:
        raise ValueError(
            f"space must be one of {[kind.__name__ for kind in _KINDS]}, "
            f"got {type(space).__name__}: {space}"
        )
    return {"space": type(space).__name__, **_describe(space)}


def _describe(space: spaces.Space[Any]) -> dict[str, Any]:
    match space:
        case SelectEntity() | PerEntity():
            return _arguments(space)
        case spaces.Box(low=low, high=high):
            shape = list(space.shape)
            return {
                "low": _numbers(low),
                "high": _numbers(high),
                "shape": shape,
                "dtype": _dtype(space),
            }
        case spaces.Discrete():
            return {"n": int(space.n), "start": int(space.start), "dtype": _dtype(space)}
        case spaces.MultiDiscrete(nvec=nvec, start=start):
            return {"nvec": nvec.tolist(), "start": start.tolist(), "dtype": _dtype(space)}
        case spaces.MultiBinary(n=n):
            return {"n": n if isinstance(n, int) else list(n)}
        case spaces.Text():
            charset = "".join(space.character_list)
            return {"lengths": [space.min_length, space.max_length], "charset": charset}
        case spaces.Dict():
            parts = [[key, space_to_dict(part)] for key, part in space.spaces.items()]
            return {"parts": parts, "sorted": getattr(space, "sort_keys", True)}
        case spaces.Tuple() | spaces.OneOf():
            return {"parts": [space_to_dict(part) for part in space.spaces]}
        case spaces.Sequence():
            return {"feature": space_to_dict(space.feature_space), "stack": space.stack}
        case spaces.Graph(node_space=node, edge_space=edge):
            edges = None if edge is None else space_to_dict(edge)
            return {"node": space_to_dict(node), "edge": edges}
    raise AssertionError(f"no description of {space}")


def space_from_dict(content: Mapping[str, Any]) -> spaces.Space[Any]:
    """Rebuild the space that `space_to_dict` described; equal to the original.

    Raises:
        ValueError: When the kind of space is unknown, with the nearest one.
    """
    c = content
    match c.get("space"):
        case "SelectEntity":
            return SelectEntity(c["group"], c["slots"])
        case "PerEntity":
            return PerEntity(
                c["group"], c["slots"], c["n"], target=c["target"], target_slots=c["target_slots"]
            )
        case "Box":
            low, high = (_array(c[bound], c["shape"], c["dtype"]) for bound in ("low", "high"))
            return spaces.Box(low, high, dtype=np.dtype(c["dtype"]).type)
        case "Discrete":
            other_type = {} if c["dtype"] == "int64" else {"dtype": np.dtype(c["dtype"])}
            return spaces.Discrete(c["n"], start=c["start"], **other_type)
        case "MultiDiscrete":
            nvec, start = np.array(c["nvec"]), np.array(c["start"])
            return spaces.MultiDiscrete(nvec, np.dtype(c["dtype"]), start=start)
        case "MultiBinary":
            return spaces.MultiBinary(c["n"])
        case "Text":
            shortest, longest = c["lengths"]
            return spaces.Text(longest, min_length=shortest, charset=c["charset"])
        case "Dict":
            parts = {key: space_from_dict(part) for key, part in c["parts"]}
            return spaces.Dict(parts) if c["sorted"] else spaces.Dict(parts, sort_keys=False)
        case "Tuple":
            return spaces.Tuple([space_from_dict(part) for part in c["parts"]])
        case "OneOf":
            return spaces.OneOf([space_from_dict(part) for part in c["parts"]])
        case "Sequence":
            return spaces.Sequence(space_from_dict(c["feature"]), stack=c["stack"])
        case "Graph":
            edge = None if c["edge"] is None else space_from_dict(c["edge"])
            return spaces.Graph(space_from_dict(c["node"]), edge)
        case other:
            names = [kind.__name__ for kind in _KINDS]
            close = nearest(str(other), names)
            raise ValueError(f"space must be one of {names}, got {other!r}{close}")


def _dtype(space: spaces.Space[Any]) -> str:
    assert space.dtype is not None
    return space.dtype.name


def _numbers(values: np.ndarray) -> Any:
    """Write an array as nested lists, or as one number where all are equal."""
    if values.size and np.all(values == values.flat[0]):
        return _plain(values.flat[0].item())
    return _plain(values.tolist())


def _plain(values: Any) -> Any:
    """Write infinities as strings, since JSON has none."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return str(values) if isinstance(values, float) and np.isinf(values) else values


def _array(values: Any, shape: list[int], dtype: str) -> np.ndarray:
    """Undo `_numbers`."""
    read = np.array(values, dtype=dtype)
    return np.array(np.broadcast_to(read, shape)) if read.ndim == 0 else read.reshape(shape)
