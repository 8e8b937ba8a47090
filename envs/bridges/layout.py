"""Where entities stand in a flat observation: a declaration, and the cut that follows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entity_encoder.envs.bridges.packages import layout_error
from entity_encoder.errors import nearest
from entity_encoder.schema import EgoFrame, EntityGroup, EntitySchema, GlobalFeature

__all__ = ["Block", "Layout"]


@dataclass(frozen=True)
class Block:
    """A run of columns: `count` rows of `width` numbers, one row after the other.

    Blocks of one name and count are put side by side: positions of all others first and their
    velocities later make one group of four columns.

    Args:
        name: Group, or global feature, that the columns belong to.
        start: First column of the run in the flat observation.
        count: Rows. A block of 0 rows is left out.
        width: Columns of a row; default as many as `features` names.
        features: Column names; default `f0, f1, ...`.
        presence: Which rows are entities: "always"; "nonzero", where any number of the group's
            row is not 0; "first 3", for padding at the end of a known count; or a column compared
            with a number, such as "hp > 0" or "flag > 0.5".
        positions: Columns that are coordinates of a point.
        directions: Columns that are components of vectors, two per vector.
        is_global: True for a vector that belongs to the whole state; its `count` must be 1.

    Raises:
        ValueError: For numbers that make no block, or a rule that cannot be read.
    """

    name: str
    start: int
    count: int = 1
    width: int = 0
    features: tuple[str, ...] = ()
    presence: str = "always"
    positions: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    is_global: bool = False

    def __post_init__(self) -> None:
        """Check the numbers; fill in width and names."""
        features = tuple(self.features)
        width = self.width or len(features)
        if self.start < 0 or self.count < 0 or width < 1:
            raise ValueError(
                f"block {self.name!r} must have start >= 0, count >= 0 and width >= 1, "
                f"got {self.start}, {self.count}, {width}"
            )
        if features and len(features) != width:
            raise ValueError(
                f"features of block {self.name!r} must name its {width} columns, got {features}"
            )
        if self.is_global and self.count > 1:
            raise ValueError(f"global block {self.name!r} must have count 1, got {self.count}")
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "features", features or tuple(f"f{i}" for i in range(width)))
        _read_rule(self.name, self.presence)

    @property
    def stop(self) -> int:
        """The column after the last."""
        return self.start + self.count * self.width


class Layout:
    """How a flat observation is cut into groups of entities and global features.

    Args:
        blocks: They must cover every column exactly once, so that a change of the observation
            is noticed instead of read wrongly.
        ignore: Runs of columns (start, stop) that are left out.
        package: Distribution that makes the observation, for errors.
        known: Its versions that the layout was tested with.

    Attributes:
        width: Number of columns.
        groups: Blocks of each group by name, side by side.

    Raises:
        ValueError: For columns covered twice or not at all, blocks of one name that do not fit
            together, and rules about columns that do not exist.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        *,
        ignore: Sequence[tuple[int, int]] = (),
        package: str | None = None,
        known: Sequence[str] = (),
    ) -> None:
        self.blocks = tuple(block for block in blocks if block.count)
        self.package = package
        self.known = tuple(known)
        self.width = _check_cover(self.blocks, ignore)
        self.groups: dict[str, list[Block]] = {}
        for block in self.blocks:
            self.groups.setdefault(block.name, []).append(block)
        for name, parts in self.groups.items():
            self._check_parts(name, parts)
        self._globals = [name for name, parts in self.groups.items() if parts[0].is_global]
        if len(self._globals) == len(self.groups):
            raise ValueError(f"blocks must hold a group of entities, got {list(self.groups)}")

    def schema(
        self, *, frame: EgoFrame | None = None, action_masks: Sequence[str] = ()
    ) -> EntitySchema:
        """Return what the cut observation contains."""
        groups, vectors = [], []
        for name, parts in self.groups.items():
            features = _features(parts)
            if name in self._globals:
                vectors.append(GlobalFeature(name, len(features)))
                continue
            groups.append(
                EntityGroup(
                    name,
                    parts[0].count,
                    features,
                    mask_key=f"{name}_mask",
                    positions=tuple(c for part in parts for c in part.positions),
                    directions=tuple(c for part in parts for c in part.directions),
                )
            )
        return EntitySchema(tuple(groups), tuple(vectors), frame, tuple(action_masks))

    def check(self, width: int) -> None:
        """Refuse an observation of another width.

        Raises:
            ValueError: Naming the package's version seen and those known to work.
        """
        if width == self.width:
            return
        rule = f"observation must have {self.width} columns, got {width}"
        if self.package is None:
            raise ValueError(rule)
        raise layout_error(self.package, self.known, rule)

    def split(self, flat: Any) -> dict[str, Any]:
        """Cut observations, (..., width), arrays or tensors alike.

        Returns:
            Groups (..., count, F) float32 with absent rows 0, masks (..., count) as int8 arrays
            or bool tensors, and global features (..., F).
        """
        self.check(flat.shape[-1])
        flat = flat.to(torch.float32) if isinstance(flat, Tensor) else np.asarray(flat, np.float32)
        result: dict[str, Any] = {}
        for name, parts in self.groups.items():
            pieces = [
                flat[..., p.start : p.stop].reshape(*flat.shape[:-1], p.count, p.width)
                for p in parts
            ]
            rows = _join(pieces)  # (..., count, F)
            if name in self._globals:
                result[name] = rows[..., 0, :]
                continue
            mask = self._mask(parts, rows)  # (..., count) bool
            if isinstance(rows, Tensor):
                result[name] = rows.masked_fill(~mask[..., None], 0.0)
                result[f"{name}_mask"] = mask
            else:
                result[name] = np.where(mask[..., None], rows, np.float32(0))
                result[f"{name}_mask"] = mask.astype(np.int8)
        return result

    def _mask(self, parts: Sequence[Block], rows: Any) -> Any:
        kind, column, number = _rule_of(parts)
        if kind == "column":
            return rows[..., _features(parts).index(column)] > number
        if kind == "nonzero":
            return (rows != 0).any(-1)
        count = rows.shape[-2] if kind == "always" else int(number)
        if isinstance(rows, Tensor):
            first = torch.arange(rows.shape[-2], device=rows.device) < count
            return first.expand(rows.shape[:-1]).clone()
        return np.broadcast_to(np.arange(rows.shape[-2]) < count, rows.shape[:-1]).copy()

    def _check_parts(self, name: str, parts: list[Block]) -> None:
        counts = {part.count for part in parts}
        if len(counts) > 1 or len({part.is_global for part in parts}) > 1:
            raise ValueError(
                f"blocks of {name!r} must have one count and one is_global, got "
                f"{[(part.count, part.is_global) for part in parts]}"
            )
        if len({part.presence for part in parts} - {"always"}) > 1:
            raise ValueError(
                f"blocks of {name!r} must have one presence rule, "
                f"got {[part.presence for part in parts]}"
            )
        kind, column, _ = _rule_of(parts)
        features = _features(parts)
        if kind == "column" and column not in features:
            raise ValueError(
                f"presence of {name!r} must compare a column among {list(features)}, "
                f"got {column!r}{nearest(column, features)}"
            )


def _features(parts: Sequence[Block]) -> tuple[str, ...]:
    return tuple(name for part in parts for name in part.features)


def _join(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(pieces, -1) if isinstance(pieces[0], Tensor) else np.concatenate(pieces, -1)


def _rule_of(parts: Sequence[Block]) -> tuple[str, str, float]:
    rules = [part.presence for part in parts if part.presence != "always"]
    return _read_rule(parts[0].name, rules[0] if rules else "always")


def _read_rule(name: str, rule: str) -> tuple[str, str, float]:
    """Return (kind, column, number) of a presence rule."""
    if rule in ("always", "nonzero"):
        return rule, "", 0.0
    first = re.fullmatch(r"first (\d+)", rule)
    if first:
        return "first", "", float(first[1])
    compared = re.fullmatch(r"(\S+) > (-?\d+(?:\.\d+)?)", rule)
    if compared:
        return "column", compared[1], float(compared[2])
    raise ValueError(
        f"presence of {name!r} must be 'always', 'nonzero', 'first <n>' or '<column> > <number>', "
        f"got {rule!r}"
    )


def _check_cover(blocks: Sequence[Block], ignore: Sequence[tuple[int, int]]) -> int:
    """Return the width that the runs cover, each column once."""
    runs = [(block.start, block.stop, repr(block.name)) for block in blocks]
    runs += [(start, stop, "ignore") for start, stop in ignore]
    end, last = 0, "the beginning"
    for start, stop, name in sorted(runs):
        if start != end:
            problem = "overlaps" if start < end else "leaves a gap after"
            raise ValueError(
                f"blocks must cover every column once, got {name} from column {start}, which "
                f"{problem} {last} (up to column {end}); name what is not used in ignore"
            )
        end, last = stop, name
    return end
