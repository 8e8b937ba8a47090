"""What is learned: each task with its steps, its published scores and the sizes it is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TASKS", "Task"]

MILLION = 1_000_000
FEWER = 204_800  # enough for the tasks that are solved by then
HALF = 512_000


@dataclass(frozen=True)
class Task:
    """One row of the table.

    Args:
        env: Name below `Entity/`.
        kwargs: Options it is trained with.
        steps: Environment steps.
        optimum: Best possible mean return, where it is known.
        default: Published mean return of the one setting adopted for all tasks.
        best: Published mean return of the best of about 720 settings.
        larger: Options of larger instances, by name, for the same weights.
    """

    env: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    steps: int = MILLION
    optimum: float | None = None
    default: float | None = None
    best: float | None = None
    larger: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _sizes(option: str, fewest: str | None, *sizes: int) -> dict[str, dict[str, int]]:
    """Options for exactly so many, or at most so many where the fewest cannot be set."""
    return {
        str(size): {option: size} if fewest is None else {option: size, fewest: size}
        for size in sizes
    }


#: Name in the table -> task. Published: the Entity Neural Network project at 1 M steps.
TASKS: dict[str, Task] = {
    "Minefield": Task(
        "Minefield", default=0.800, best=1.0, larger=_sizes("max_mines", None, 20, 40, 64)
    ),
    "CherryPick": Task(
        "CherryPick",
        steps=FEWER,
        optimum=1.0,
        default=0.999,
        best=1.0,
        larger=_sizes("max_cherries", None, 64, 128, 256),
    ),
    "FloorIsLava": Task("FloorIsLava", steps=FEWER, optimum=1.0, default=1.0, best=1.0),
    "PickMatchingBalls": Task(
        "PickMatchingBalls",
        steps=HALF,
        optimum=1.0,
        default=0.762,
        best=1.0,
        larger=_sizes("max_balls", "min_balls", 64, 128, 256),
    ),
    "MultiSnake": Task("MultiSnake", optimum=1.0, default=0.976, best=1.0),
    "MultiSnake-2": Task("MultiSnake", {"num_snakes": 2}, optimum=1.0, default=0.528, best=0.929),
    "Count": Task("Count", steps=HALF, optimum=1.0, default=1.0, best=1.0),
    "Xor": Task("Xor", steps=FEWER, optimum=1.0, default=1.0, best=1.0),
    "RockPaperScissors": Task("RockPaperScissors", steps=FEWER, optimum=1.0),
    "Triage": Task(
        "Triage", steps=HALF, optimum=1.0, larger=_sizes("max_jobs", "min_jobs", 16, 32, 64)
    ),
    "LockChain": Task(
        "LockChain",
        steps=HALF,
        optimum=1.0,
        larger={
            "chain 6": {"max_chain": 6, "min_chain": 6, "min_branches": 3},
            "8 branches": {"min_chain": 3, "max_branches": 8, "min_branches": 8},
        },
    ),
    "Coverage": Task("Coverage", larger=_sizes("max_agents", "min_agents", 3, 8, 16, 32)),
    "Sorter": Task("Sorter", optimum=1.0, larger=_sizes("max_tiles", "min_tiles", 10, 20)),
    "Skirmish": Task("Skirmish", larger=_sizes("max_units", "min_units", 5, 8, 16, 32)),
}
