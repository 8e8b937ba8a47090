"""How a batch of sets lies in memory: the plan that every layer of one pass reuses.

`PackedLayout` keeps rows for existing entities only, sets ordered by size and the entities of a
set adjacent, so that linear layers, norms and attention never touch padding. `DenseLayout` keeps
(B, N) slots with static shapes, for export, compilation and CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

__all__ = ["DenseLayout", "Layout", "PackedLayout", "dense_layout", "packed_layouts", "tokens"]

Reduction = Literal["sum", "mean", "max"]

# Row counts are padded to a multiple of 16: below that, GEMM takes edge kernels whose rounding
# depends on the number of rows, and a set's result would depend on its neighbours (with AVX2 a
# multiple of 8 is enough, with AVX-512 it is not for few outputs).
ROW_MULTIPLE = 16


@dataclass
class PackedLayout:
    """Rows of the existing entities of some sets, ordered by set size.

    Legend: T rows, R = T rounded up to a multiple of 16, S sets (none of them empty), B sets in
    the whole batch, N slots.

    Attributes:
        rows: (T,) index of each row in the flattened (B * N) slots.
        set_of_row: (T,) which of the B sets a row belongs to.
        sets: (S,) which of the B sets stands at each place of the order.
        groups: `(sets, size)` of each run of equally large sets, sizes rising.
        n_rows: R.
        shape: (B, N).
        strategy: How attention is computed: groups, fast, padded or varlen.
        first_row: Where the rows begin among the slots, when they are all slots of neighbouring
            sets; None when they must be gathered.
    """

    rows: Tensor
    set_of_row: Tensor
    sets: Tensor
    groups: list[tuple[int, int]]
    n_rows: int
    shape: tuple[int, int]
    strategy: str
    first_row: int | None = None

    def __post_init__(self) -> None:
        """Derive the sizes of the runs, with the tail of padding rows as the last."""
        used = [count * size for count, size in self.groups]
        self.tail = self.n_rows - sum(used)
        self.row_splits = [*used, self.tail] if self.tail else used
        self.set_splits = [count for count, _ in self.groups]
        self.largest = self.groups[-1][1] if self.groups else 0
        self._padded_index: Tensor | None = None

    @property
    def n_sets(self) -> int:
        """S, the number of sets with rows here."""
        return len(self.sets)

    def small_sets(self, size: int) -> int:
        """Return how many runs, the first ones, have sets of at most `size` entities."""
        return sum(n <= size for _, n in self.groups)

    def pad(self, x: Tensor) -> Tensor:
        """Append zero rows: (T, D) -> (R, D)."""
        missing = self.n_rows - x.shape[0]
        return x if not missing else torch.nn.functional.pad(x, (0, 0, 0, missing))

    def split(self, x: Tensor) -> list[Tensor]:
        """Cut rows (R, D) into one (sets, size, D) block per run of equally large sets."""
        # One split for all: a slice in a loop would write a full-size gradient for each.
        pieces = x.split(self.row_splits)
        return [
            piece.unflatten(0, (count, size))
            for piece, (count, size) in zip(pieces, self.groups, strict=False)
        ]

    def join(self, blocks: list[Tensor], like: Tensor) -> Tensor:
        """Put blocks of rows (count * size, D) back together: (R, D)."""
        if self.tail or not blocks:
            blocks = [*blocks, like.new_zeros(self.tail, like.shape[-1])]
        return torch.cat(blocks)

    def reduce(self, x: Tensor, how: Reduction) -> Tensor:
        """Reduce the rows of each set: (R, D) -> (S, D), in the order of `sets`."""
        blocks = [_REDUCE[how](block) for block in self.split(x)]
        return torch.cat(blocks) if blocks else x.new_zeros(0, x.shape[-1])

    def per_row(self, x: Tensor) -> Tensor:
        """Hand one vector per batch member to its rows: (B, D) -> (R, D)."""
        return self.pad(x.index_select(0, self.set_of_row))

    def per_set(self, x: Tensor) -> Tensor:
        """Take the sets of this layout from the batch: (B, ...) -> (S, ...)."""
        return x.index_select(0, self.sets)

    def pick(self, x: Tensor) -> Tensor:
        """Take the existing entities from slots: (B, N, D) -> (R, D)."""
        slots = x.flatten(0, 1)
        if self.first_row is not None:
            return self.pad(slots.narrow(0, self.first_row, len(self.rows)))
        return self.pad(slots.index_select(0, self.rows))

    def pick_flags(self, flags: Tensor) -> Tensor:
        """Take the flags of the existing entities: (B, N) bool -> (R,) bool, False in the tail."""
        picked = flags.flatten().index_select(0, self.rows)
        return torch.nn.functional.pad(picked, (0, self.n_rows - picked.shape[0]))

    def padded_index(self) -> Tensor:
        """Index of each row in (S, largest) slots filled from the front: (T,)."""
        if self._padded_index is None:
            index, start = [], 0
            for count, size in self.groups:
                first = torch.arange(start, start + count) * self.largest
                index.append((first[:, None] + torch.arange(size)).flatten())
                start += count
            flat = torch.cat(index) if index else torch.zeros(0, dtype=torch.long)
            self._padded_index = flat.to(self.rows.device)
        return self._padded_index

    def padded_mask(self) -> Tensor:
        """Which of the (S, largest) slots are filled: bool."""
        sizes = [size for count, size in self.groups for _ in range(count)]
        device = self.rows.device
        lengths = torch.tensor(sizes, device=device)
        return torch.arange(self.largest, device=device) < lengths[:, None]

    def cumulative(self) -> Tensor:
        """First row of each set and the end of the last, (S + 1,) int32, as varlen wants it."""
        sizes = [size for count, size in self.groups for _ in range(count)]
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return torch.from_numpy(ends).to(self.rows.device)


@dataclass
class DenseLayout:
    """All (B, N) slots, absent ones masked; every shape is static.

    Attributes:
        mask: (B, N) bool, True = an entity is there.
    """

    mask: Tensor
    strategy: str = "dense"

    def __post_init__(self) -> None:
        """Let an empty set attend to its (zeroed) slots: its rows are dropped afterwards.

        A row without any key is 0 in some attention kernels and NaN in others.
        """
        self.key_mask = self.mask | ~self.mask.any(dim=1, keepdim=True)  # (B, N)

    @property
    def n_sets(self) -> int:
        """B, the number of sets."""
        return self.mask.shape[0]

    def per_row(self, x: Tensor) -> Tensor:
        """Hand one vector per set to its slots: (B, D) -> (B, N, D)."""
        return x[:, None].expand(-1, self.mask.shape[1], -1)

    def per_set(self, x: Tensor) -> Tensor:
        """Return x: every set of the batch is here."""
        return x

    def pick(self, x: Tensor) -> Tensor:
        """Zero the absent slots: (B, N, D) -> (B, N, D)."""
        return torch.where(self.mask[..., None], x, 0.0)

    def pick_flags(self, flags: Tensor) -> Tensor:
        """Keep the flags of present entities: (B, N) bool."""
        return flags & self.mask

    def reduce(self, x: Tensor, how: Reduction) -> Tensor:
        """Reduce the present entities of each set, 0 for an empty one: (B, N, D) -> (B, D)."""
        keep = self.mask[..., None]
        if how == "max":
            # A slot more, so that no entities at all leave something to take the maximum of.
            lowest = torch.where(keep, x, torch.finfo(x.dtype).min)
            lowest = torch.nn.functional.pad(lowest, (0, 0, 0, 1), value=torch.finfo(x.dtype).min)
            return torch.where(self.mask.any(1, keepdim=True), lowest.amax(1), 0.0)
        # Accumulated in fp32 at least: 700 entities of 100.0 overflow half precision.
        wide = torch.promote_types(x.dtype, torch.float32)
        total = torch.where(keep, x, 0.0).sum(1, dtype=wide)
        if how == "mean":
            total = total / self.mask.sum(1, keepdim=True).clamp(min=1)
        return total.to(x.dtype)


Layout = PackedLayout | DenseLayout


def _sum(block: Tensor) -> Tensor:
    return block.sum(1)


def _mean(block: Tensor) -> Tensor:
    return block.mean(1)


def _max(block: Tensor) -> Tensor:
    return block.amax(1)


_REDUCE: dict[str, Callable[[Tensor], Tensor]] = {"sum": _sum, "mean": _mean, "max": _max}


def tokens(layouts: Sequence[Layout], rows: Sequence[Tensor]) -> Tensor:
    """Put the rows of all chunks back into slots, exact zeros where absent.

    Args:
        layouts: The chunks of one batch.
        rows: (R, D) per packed chunk, or the one (B, N, D) of a dense layout.

    Returns:
        (B, N, D).
    """
    first = layouts[0]
    if isinstance(first, DenseLayout):
        return torch.where(first.mask[..., None], rows[0], 0.0)
    packed = [layout for layout in layouts if isinstance(layout, PackedLayout)]
    real = [x[: len(layout.rows)] for x, layout in zip(rows, packed, strict=True)]
    if first.first_row is not None:  # no slot is empty
        return (torch.cat(real) if len(real) > 1 else real[0]).unflatten(0, first.shape)
    batch, slots = first.shape
    out = rows[0].new_zeros(batch * slots, rows[0].shape[-1])
    if torch.is_grad_enabled():  # one node for all chunks: each would write a full-size gradient
        out.index_copy_(0, torch.cat([layout.rows for layout in packed]), torch.cat(real))
    else:
        for layout, x in zip(packed, real, strict=True):
            out.index_copy_(0, layout.rows, x)
    return out.unflatten(0, first.shape)


def dense_layout(mask: Tensor) -> DenseLayout:
    """Return the layout that keeps every slot of `mask` (B, N)."""
    return DenseLayout(mask)


def packed_layouts(
    mask: Tensor, *, strategy: str, max_rows: int | None = None
) -> list[PackedLayout]:
    """Plan the packing of a batch, in chunks of at most about `max_rows` rows.

    Args:
        mask: (B, N) bool, True = an entity is there.
        strategy: Attention strategy the layouts carry.
        max_rows: Bound on the rows of one chunk; a single set may exceed it. None: one chunk.

    Returns:
        Layouts over the non-empty sets; together they cover every present entity once.
    """
    batch, slots = mask.shape
    present = mask.cpu().numpy()
    sizes = present.sum(1)  # (B,)
    order = np.argsort(sizes, kind="stable")
    order = order[np.searchsorted(sizes[order], 1) :]  # empty sets have no rows
    rows = np.flatnonzero(present[order])  # index in (S, N), sets in order
    set_of_row = np.repeat(order, sizes[order])
    rows = set_of_row * slots + rows % max(slots, 1)
    bounds = _chunk_bounds(sizes[order], max_rows)
    full = len(rows) == batch * slots
    starts = np.concatenate([[0], np.cumsum(sizes[order])])
    return [
        _chunk(
            rows[starts[first] : starts[last]],
            set_of_row[starts[first] : starts[last]],
            order[first:last],
            sizes[order[first:last]],
            (batch, slots),
            strategy,
            mask.device,
            int(starts[first]) if full else None,
        )
        for first, last in bounds
    ]


def _chunk_bounds(sizes: np.ndarray, max_rows: int | None) -> list[tuple[int, int]]:
    """Cut the ordered sets into runs of at most `max_rows` rows."""
    if max_rows is None or sizes.sum() <= max_rows:
        return [(0, len(sizes))]
    ends = np.cumsum(sizes)
    bounds, first = [], 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + max_rows, side="right")), first + 1)
        bounds.append((first, last))
        first = last
    return bounds


def _chunk(
    rows: np.ndarray,
    set_of_row: np.ndarray,
    sets: np.ndarray,
    sizes: np.ndarray,
    shape: tuple[int, int],
    strategy: str,
    device: torch.device,
    first_row: int | None,
) -> PackedLayout:
    values, counts = np.unique(sizes, return_counts=True)
    return PackedLayout(
        rows=torch.from_numpy(rows).to(device),
        set_of_row=torch.from_numpy(set_of_row).to(device),
        sets=torch.from_numpy(sets).to(device),
        groups=[(int(c), int(v)) for v, c in zip(values, counts, strict=True)],
        n_rows=-(-len(rows) // ROW_MULTIPLE) * ROW_MULTIPLE,
        shape=shape,
        strategy=strategy,
        first_row=first_row,
    )
