"""How a coefficient changes over training, as a function of progress alone.

Progress is the share of the run's total steps that were learned from before an update. It belongs
to the run, not to a call of `learn`, so a resumed run continues its schedules.
"""

from __future__ import annotations

import math

from entity_encoder.errors import choose

__all__ = ["SCHEDULES", "scheduled"]

SCHEDULES = ("constant", "linear", "cosine")


def scheduled(kind: str, start: float, progress: float, *, final: float = 0.0) -> float:
    """Return a coefficient's value.

    Args:
        kind: constant; linear or cosine from `start` down to `final * start`.
        start: Value at the beginning.
        progress: 0 at the beginning, 1 at the end; what lies beyond counts as the end.
        final: Share of `start` that is left at the end.
    """
    progress = min(max(progress, 0.0), 1.0)
    match choose("schedule", kind, SCHEDULES):
        case "constant":
            left = 1.0
        case "linear":
            left = 1.0 - progress
        case _:
            left = 0.5 * (1.0 + math.cos(math.pi * progress))
    return start * (final + (1.0 - final) * left)
