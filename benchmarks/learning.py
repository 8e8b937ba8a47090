"""What the default configuration learns: `python -m benchmarks.learning [TASK...]`.

Every task is trained with `PPOConfig()` and several seeds, then evaluated for 200 deterministic
episodes. One JSON file a run stands under `docs/results/learning/`; a run whose file exists is
skipped and one that was interrupted goes on from its checkpoint, so the table can be made in
pieces. `--table` writes `docs/results/learning.md` and the plots from what is there.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from entity_encoder.agents import PPO, PPOConfig

__all__ = ["main", "train_once", "write_table"]

RESULTS = Path("docs/results")
RUNS = Path("runs/learning")

# task: steps, published (default setting, best of about 720 settings) at 1 M steps.
TASKS: dict[str, tuple[int, str]] = {
    "Minefield": (1_000_000, ".800 / 1.0"),
    "CherryPick": (1_000_000, ".999 / 1.0"),
    "FloorIsLava": (1_000_000, "1.0 / 1.0"),
    "PickMatchingBalls": (1_000_000, ".762 / 1.0"),
    "MultiSnake": (1_000_000, ".976 / 1.0"),
    "Count": (1_000_000, "1.0 / 1.0"),
    "Xor": (1_000_000, "1.0 / 1.0"),
    "RockPaperScissors": (1_000_000, "1.0 fair"),
    "Triage": (1_000_000, ""),
    "LockChain": (1_000_000, ""),
    "Coverage": (1_000_000, ""),
    "Sorter": (1_000_000, ""),
    "Skirmish": (1_000_000, ""),
}


def cpu_seconds() -> float:
    """CPU time of this process and its children so far."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def train_once(task: str, seed: int, steps: int, *, episodes: int = 200) -> dict[str, Any]:
    """Train one seed, or finish it, and evaluate what it learned."""
    run_dir = RUNS / f"{task.lower()}-seed{seed}"
    checkpoint = run_dir / "checkpoint"
    wall, cpu = time.perf_counter(), cpu_seconds()
    if checkpoint.exists():
        agent = PPO.load(checkpoint)
    else:
        config = PPOConfig(total_steps=steps, seed=seed)
        agent = PPO(f"Entity/{task}-v0", config, run_dir=run_dir)
    agent.learn()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    greedy = agent.evaluate(episodes=episodes).to_dict()
    sampled = agent.evaluate(episodes=episodes, deterministic=False).to_dict()
    return {
        "task": task,
        "seed": seed,
        "steps": agent.steps,
        "training_return": last_returns(run_dir),
        "deterministic": greedy,
        "sampled": sampled,
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "published": TASKS[task][1],
    }


def last_returns(run_dir: Path) -> float | None:
    """Mean return of the last 100 training episodes, as logged."""
    from entity_encoder.agents.curves import read_curves

    curve = read_curves(run_dir).get("episode/return")
    return None if curve is None else float(curve.values[-1])


def load_results(tasks: Iterable[str]) -> list[dict[str, Any]]:
    """Read every result that is there."""
    found = sorted((RESULTS / "learning").glob("*.json"))
    rows = [json.loads(path.read_text()) for path in found]
    return [row for row in rows if row["task"] in set(tasks)]


def write_table(tasks: Iterable[str]) -> str:
    """Write `docs/results/learning.md` and return its text."""
    lines = [
        "# What the default configuration learns",
        "",
        "`python -m benchmarks.learning`: `PPOConfig()` on every task. Return of the last 100",
        "training episodes; return and score of 200 episodes with the most probable action (score:",
        "0 = random actions, 1 = the scripted reference). Mean over seeds, with the lowest and the",
        "highest. Published: the Entity Neural Network project at 1 M steps, the one setting it",
        "adopted for all tasks / the best of about 720.",
        "",
        "| task | steps | seeds | training | evaluation | score | CPU s | published |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = load_results(tasks)
    for task in TASKS:
        mine = [row for row in rows if row["task"] == task]
        if mine:
            lines.append(_table_row(task, mine))
    text = "\n".join(lines) + "\n"
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "learning.md").write_text(text)
    return text


def _table_row(task: str, rows: list[dict[str, Any]]) -> str:
    def spread(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        if not known:
            return ""
        return f"{np.mean(known):.3f} ({min(known):.3f} to {max(known):.3f})"

    scores = [row["deterministic"].get("score") for row in rows]
    cells = [
        task,
        f"{max(row['steps'] for row in rows):,}",
        ", ".join(str(row["seed"]) for row in rows),
        spread([row["training_return"] for row in rows]),
        spread([row["deterministic"]["return"]["mean"] for row in rows]),
        spread([score and score["mean"] for score in scores]),
        f"{np.mean([row['cpu_seconds'] for row in rows]):,.0f}",
        rows[0]["published"],
    ]
    return "| " + " | ".join(cells) + " |"


def write_plot(tasks: Iterable[str]) -> None:
    """Draw the learning curves of each task, with a band over its seeds."""
    from entity_encoder.agents.plots import plot_runs

    for task in tasks:
        runs = sorted(RUNS.glob(f"{task.lower()}-*"))
        if runs:
            plot_runs(runs, RESULTS / f"learning-{task.lower()}", tags=["episode/return"])


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"among {', '.join(TASKS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, help="instead of each task's 1 M")
    parser.add_argument("--table", action="store_true", help="only write the table and the plots")
    args = parser.parse_args(argv)
    tasks = args.tasks or list(TASKS)
    for task in tasks:
        if task not in TASKS:
            parser.error(f"TASK must be among {', '.join(TASKS)}, got {task}")
    for task in () if args.table else tasks:
        for seed in args.seeds:
            path = RESULTS / "learning" / f"{task.lower()}-{seed}.json"
            if path.exists():
                print(f"{path} exists, skipped")
                continue
            row = train_once(task, seed, args.steps or TASKS[task][0])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row, indent=1) + "\n")
    print(write_table(TASKS))
    if args.table:
        write_plot(tasks)


if __name__ == "__main__":
    main()
