"""Draw learning curves of runs, with confidence bands over seeds."""

from __future__ import annotations

import argparse

__all__ = ["add_options", "run"]

EXAMPLES = """examples:
  entity-encoder plot runs                           all runs below; seeds become one band
  entity-encoder plot runs/minefield-seed* --tag episode/score --out docs/minefield
  entity-encoder plot runs --tag policy/kl --tag policy/entropy --smooth 0.9
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory, or one with runs")
    parser.add_argument("--out", default="curves", help="files to write, without ending")
    parser.add_argument(
        "--tag", action="append", default=[], help="scalar to draw; may be given several times"
    )
    parser.add_argument(
        "--smooth", type=float, default=0.0, help="0 = every point as it is, below 1"
    )
    parser.add_argument("--title", default="", help="a line above the panels")


def run(options: argparse.Namespace) -> int:
    """Draw and say where."""
    from entity_encoder.agents.plots import plot_runs

    files = plot_runs(
        options.runs, options.out, tags=options.tag, smoothing=options.smooth, title=options.title
    )
    print("\n".join(str(file) for file in files))
    return 0
