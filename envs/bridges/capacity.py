"""More entities than slots: a rule that is never random, a count, and one warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np

__all__ = ["Capacity", "Priority"]

#: Which entities stay: the first or last delivered, or those of the highest score (n, F) -> (n,).
Priority = Literal["first", "last"] | Callable[[np.ndarray], np.ndarray]


class Capacity:
    """Fit sets of any size into a fixed number of slots.

    Entities that do not fit are left out by `priority`; those that stay keep their order. Of equal
    scores the earlier one stays.

    Args:
        name: Group, for messages.
        slots: How many fit.
        priority: Which stay.

    Attributes:
        truncated: Entities left out so far, over all observations.

    Raises:
        ValueError: For less than one slot or an unknown priority.
    """

    def __init__(self, name: str, slots: int, priority: Priority = "first") -> None:
        if slots < 1:
            raise ValueError(f"slots of {name!r} must be at least 1, got {slots}")
        if not callable(priority) and priority not in ("first", "last"):
            raise ValueError(f"priority must be 'first', 'last' or a function, got {priority!r}")
        self.name = name
        self.slots = slots
        self.priority = priority
        self.truncated = 0

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of the rows, (n, F), that stay, in rising order, (m <= slots,)."""
        count = len(rows)
        if count <= self.slots:
            return np.arange(count)
        if self.truncated == 0:
            warnings.warn(
                f"{count} entities of {self.name!r} do not fit into {self.slots} slots: the rest "
                f"is left out by priority={self.priority!r}; raise the number of slots to see "
                "them (said once; `truncated_entities` counts on)",
                stacklevel=2,
            )
        self.truncated += count - self.slots
        if self.priority == "first":
            return np.arange(self.slots)
        if self.priority == "last":
            return np.arange(count - self.slots, count)
        assert callable(self.priority)
        scores = np.asarray(self.priority(rows))
        if scores.shape != (count,):
            raise ValueError(
                f"priority of {self.name!r} must return one score for each of {count} rows, "
                f"got shape {scores.shape}"
            )
        return np.sort(np.argsort(-scores, kind="stable")[: self.slots])

    def pad(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that stay with zeros behind, (slots, F) float32, and the mask, int8."""
        kept = rows[self.choose(rows)]
        padded = np.zeros((self.slots, rows.shape[1]), np.float32)
        padded[: len(kept)] = kept
        return padded, (np.arange(self.slots) < len(kept)).astype(np.int8)
