"""Open TensorBoard on a run, on a free port."""

from __future__ import annotations

import argparse

from entity_encoder.agents.cli.defaults import RUNS

__all__ = ["add_options", "run"]

EXAMPLES = """examples:
  entity-encoder watch                               everything in ./runs
  entity-encoder watch runs/minefield-seed1 --port 7000
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run_dir", nargs="?", default=str(RUNS), help="default: runs")
    parser.add_argument("--port", type=int, help="default: 6006, or any free one")
    parser.add_argument(
        "--host", default="localhost", help="0.0.0.0 lets other machines in (default: localhost)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; TensorBoard's own process ends with this one."""
    from entity_encoder.agents.interruption import interruptible
    from entity_encoder.agents.watch import TensorBoard

    with TensorBoard(options.run_dir, port=options.port, host=options.host) as board:
        try:
            with interruptible():
                print(
                    f"TensorBoard on {options.run_dir}: {board.url}   (Ctrl-C stops it)", flush=True
                )
                board.wait()
        except KeyboardInterrupt:
            print("stopped")
    return 0
