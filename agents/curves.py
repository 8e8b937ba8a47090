"""Read learning curves from event files and put those of several seeds together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from entity_encoder.agents.statistics import t_quantile

__all__ = ["Band", "Curve", "band", "find_runs", "group_runs", "read_curves", "smooth"]

EVENTS = "events.out.tfevents.*"
# What tells two seeds of one experiment apart at the end of a name: -seed3, _s3, -seed3-2, /3
SEED = re.compile(r"(?:^|[-_.])(?:seed|s)[-_]?\d+(?:[-_]\d+)?$|^\d+$")


@dataclass(frozen=True)
class Curve:
    """One number over training.

    Args:
        steps: (P,) rising.
        values: (P,).
    """

    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Band:
    """The mean of several curves, with its 95 % confidence interval.

    Args:
        steps: (P,) every step at which one of the curves has a point.
        mean: (P,) over the curves that reach this step.
        low: (P,) NaN where only one curve is left.
        high: (P,)
        count: Number of curves.
    """

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: int


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """List the directories that hold event files, in or below the given ones.

    Raises:
        ValueError: A path does not exist, or nothing was logged below it.
    """
    runs: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise ValueError(f"run must be an existing directory, got {str(path)!r}")
        found = sorted({file.parent for file in path.rglob(EVENTS)})
        if not found:
            raise ValueError(f"run must hold TensorBoard event files, got none in {str(path)!r}")
        runs += [run for run in found if run not in runs]
    return runs


def group_runs(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Put the seeds of one experiment together, by the names of their directories.

    ``minefield-seed1`` and ``minefield-seed2`` are two seeds of ``minefield``, and so are
    ``minefield/1`` and ``minefield/seed2``.
    """
    places: dict[Path, list[Path]] = {}
    for run in runs:
        stem = SEED.sub("", run.resolve().name)
        place = run.resolve().parent / stem if stem else run.resolve().parent
        places.setdefault(place, []).append(run)
    return {_label(place, places): members for place, members in places.items()}


def read_curves(run: str | Path) -> dict[str, Curve]:
    """Read every scalar of a run, all points of it.

    Args:
        run: The directory with the event files; several files are one continuous run.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(run), size_guidance={"scalars": 0})
    log.Reload()
    curves = {}
    for tag in log.Tags()["scalars"]:
        events = log.Scalars(tag)
        steps = np.array([event.step for event in events], dtype=np.int64)
        curves[tag] = Curve(steps, np.array([event.value for event in events]))
    return curves


def smooth(curve: Curve, weight: float) -> Curve:
    """Average exponentially as TensorBoard does: ``weight`` 0 leaves the curve as it is.

    Raises:
        ValueError: The weight is outside [0, 1).
    """
    if not 0.0 <= weight < 1.0:
        raise ValueError(f"smoothing must be at least 0 and below 1, got {weight}")
    last, norm, smoothed = 0.0, 0.0, []
    for value in curve.values:
        if np.isfinite(value):
            last = weight * last + (1.0 - weight) * value
            norm = weight * norm + (1.0 - weight)  # so that the first points are not drawn to 0
        smoothed.append(last / norm if norm else np.nan)
    return Curve(curve.steps, np.array(smoothed))


def band(curves: Sequence[Curve]) -> Band:
    """Average curves; a curve counts between its own first and last step.

    Raises:
        ValueError: There is no curve, or none has a finite point.
    """
    finite = [Curve(c.steps[f], c.values[f]) for c in curves for f in [np.isfinite(c.values)]]
    finite = [c for c in finite if c.steps.size]
    if not finite:
        raise ValueError("curves must hold at least one finite point, got none")
    steps = np.unique(np.concatenate([c.steps for c in finite]))  # (P,)
    rows = [np.interp(steps, c.steps, c.values, left=np.nan, right=np.nan) for c in finite]
    table = np.stack(rows)  # (curves, P)
    reached = np.isfinite(table)
    count = reached.sum(0)
    total = np.where(reached, table, 0.0).sum(0)
    mean = np.divide(total, count, out=np.full(len(steps), np.nan), where=count > 0)
    squares = np.where(reached, (table - mean) ** 2, 0.0).sum(0)
    t = np.array([t_quantile(n - 1) if n > 1 else np.nan for n in count])
    half = t * np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1))
    kept = count > 0
    low, high = mean - half, mean + half
    return Band(steps[kept], mean[kept], low[kept], high[kept], len(finite))


def _label(place: Path, places: Mapping[Path, object]) -> str:
    """Name a group by its last folder, or by the last two where that would be ambiguous."""
    twins = [other for other in places if other.name == place.name]
    return place.name if len(twins) == 1 else f"{place.parent.name}/{place.name}"
