"""Draw learning curves with confidence bands over seeds, as PNG and SVG, without a display."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entity_encoder.agents.curves import Curve, band, find_runs, group_runs, read_curves, smooth
from entity_encoder.agents.monitor import SCALARS
from entity_encoder.errors import nearest

__all__ = ["choose_tags", "draw_curves", "plot_runs"]

DEFAULT_TAGS = ("episode/score", "episode/return", "evaluation/score", "evaluation/return")
# Colours that the common forms of colour blindness keep apart (Okabe and Ito, 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LABEL = 45  # characters that fit beside a panel
MEANINGS = {scalar.tag: scalar.meaning for scalar in SCALARS}


def plot_runs(
    runs: Sequence[str | Path],
    out: str | Path = "curves",
    *,
    tags: Sequence[str] = (),
    smoothing: float = 0.0,
    title: str = "",
) -> list[Path]:
    """Draw the curves of runs; seeds of one experiment become one line with a band.

    Args:
        runs: Run directories, or directories with runs in them.
        out: Where to write; ``.png`` and ``.svg`` are put behind it.
        tags: Scalars to draw, one panel each; the score and the return by default.
        smoothing: As in TensorBoard, from 0 (every point as it is) to below 1.
        title: A line above the panels.

    Returns:
        The two files written.

    Raises:
        ValueError: A run or a tag that is not there.
        ImportError: matplotlib is not installed.
    """
    _figure_class()  # before logs are read for nothing
    groups = group_runs(find_runs(runs))
    curves = {
        label: [{k: smooth(c, smoothing) for k, c in read_curves(run).items()} for run in members]
        for label, members in groups.items()
    }
    panels = {
        tag: {label: [c[tag] for c in found if tag in c] for label, found in curves.items()}
        for tag in choose_tags(curves, tags)
    }
    return draw_curves(panels, out, title=title)


def draw_curves(
    panels: Mapping[str, Mapping[str, Sequence[Curve]]], out: str | Path, *, title: str = ""
) -> list[Path]:
    """Draw panels of lines, each the mean of some curves with its 95 % band.

    Args:
        panels: Title of each panel, and in it name of each line -> its curves. A tag as the title
            puts its meaning beside the panel.
        out: Where to write; ``.png`` and ``.svg`` are put behind it.
        title: A line above the panels.

    Returns:
        The two files written.

    Raises:
        ValueError: There is no panel.
        ImportError: matplotlib is not installed.
    """
    if not panels:
        raise ValueError("panels must hold at least one, got none")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    figure = _figure_class()(figsize=(6.4 * columns, 4.0 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, (name, lines) in zip(axes, panels.items(), strict=False):
        _draw_panel(axis, name, lines)
    for axis in list(axes)[len(panels) :]:
        axis.set_axis_off()
    if title:
        figure.suptitle(title)
    return _save(figure, Path(out))


def choose_tags(
    curves: Mapping[str, Sequence[Mapping[str, Curve]]], tags: Sequence[str]
) -> list[str]:
    """Check the asked-for tags, or pick those that say whether it learns.

    Raises:
        ValueError: No run has the tag; or none has any of the default ones.
    """
    present = sorted({tag for runs in curves.values() for run in runs for tag in run})
    for tag in tags:
        if tag not in present:
            raise ValueError(
                f"tag must be one that was logged, got {tag!r}{nearest(tag, present)} "
                f"(logged: {', '.join(present)})"
            )
    chosen = list(tags) or [tag for tag in DEFAULT_TAGS if tag in present]
    if not chosen:
        raise ValueError(f"tags must be given, for none of {DEFAULT_TAGS} was logged: {present}")
    return chosen


def _draw_panel(axis: Any, tag: str, groups: Mapping[str, Sequence[Curve]]) -> None:
    for index, (label, curves) in enumerate(groups.items()):
        if not any(len(curve.steps) for curve in curves):
            continue
        colour = COLOURS[index % len(COLOURS)]
        joined = band(curves)
        name = label if joined.count == 1 else f"{label} ({joined.count} seeds)"
        marker = "o" if len(joined.steps) == 1 else None
        axis.plot(joined.steps, joined.mean, color=colour, label=name, linewidth=1.8, marker=marker)
        if joined.count > 1:
            axis.fill_between(
                joined.steps, joined.low, joined.high, color=colour, alpha=0.2, linewidth=0
            )
            for curve in curves:
                axis.plot(curve.steps, curve.values, color=colour, alpha=0.3, linewidth=0.7)
    axis.set_title(tag, fontsize=11, loc="left", fontweight="bold")
    axis.set_ylabel(textwrap.fill(MEANINGS.get(tag, ""), LABEL), fontsize=8)
    axis.set_xlabel("environment steps")
    axis.xaxis.set_major_formatter(lambda steps, _: _short(steps))
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.legend(frameon=False, fontsize=9)


def _short(steps: float) -> str:
    """Write 250000 as 250k and 2000000 as 2M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= unit:
            return f"{steps / unit:g}{name}"
    return f"{steps:g}"


def _save(figure: Any, out: Path) -> list[Path]:
    """Write both formats; an ending of either on ``out`` is not doubled."""
    stem = out.with_suffix("") if out.suffix in (".png", ".svg") else out
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def _figure_class() -> Any:
    """Return matplotlib's figure: used without pyplot it never looks for a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'entity-encoder[plot]'") from error
    return Figure
