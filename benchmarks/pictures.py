"""Make the pictures of the README from a run: `python -m benchmarks.pictures [RUN_DIR]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from entity_encoder.agents.cli.main import main as entity_encoder
from entity_encoder.agents.plots import plot_runs

__all__ = ["main"]

IMAGES = Path("docs/images")


def main(argv: list[str] | None = None) -> None:
    """Record the trained agent and draw its learning curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", nargs="?", default="runs/learning/minefield-seed1")
    run_dir = Path(parser.parse_args(argv).run_dir)
    IMAGES.mkdir(parents=True, exist_ok=True)
    name = run_dir.name.partition("-")[0]
    video = str(IMAGES / f"{name}.gif")
    entity_encoder(["eval", str(run_dir), "--episodes", "4", "--video", video])
    plot_runs([run_dir], IMAGES / f"{name}-curve", tags=["episode/return"])


if __name__ == "__main__":
    main()
