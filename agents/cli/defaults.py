"""What `entity-encoder` does when it is not told otherwise."""

from __future__ import annotations

from pathlib import Path

from entity_encoder.agents import checkpoint

__all__ = ["DEFAULT_TASK", "RUNS", "find_checkpoint", "new_run_dir"]

DEFAULT_TASK = "Entity/CherryPick-v0"
RUNS = Path("runs")


def new_run_dir(env: str, seed: int, folder: Path = RUNS) -> Path:
    """Name a new directory for a run: ``runs/minefield-seed1``, else ``-2`` and so on behind it."""
    task = env.rpartition("/")[2].rpartition(":")[2]
    name = task.rpartition("-v")[0] or task
    first = folder / f"{name.lower()}-seed{seed}"
    path, number = first, 2
    while path.exists():
        path = first.with_name(f"{first.name}-{number}")
        number += 1
    return path


def find_checkpoint(path: str | Path) -> Path:
    """Return the checkpoint that a run directory holds, or the path when it is one itself.

    Raises:
        FileNotFoundError: There is none.
    """
    path = Path(path)
    for place in (path, path / "checkpoint"):
        if checkpoint.exists(place):
            return place
    what = "holds none" if path.is_dir() else "does not exist"
    raise FileNotFoundError(
        f"checkpoint must be a run directory or a checkpoint, got {str(path)!r}, which {what}"
    )
