"""Write tables and plots from the results that are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.tasks import TASKS
from benchmarks.learning.training import RUNS

__all__ = ["RESULTS", "load_results", "result_path", "spread", "write_plots", "write_table"]

RESULTS = Path("docs/results")
Row = dict[str, Any]

HEAD = """# What the default configuration learns

`python -m benchmarks.learning`: `PPOConfig()` on every task. Return of the last 100 training
episodes; return and score of 200 episodes with the most probable action (score: 0 = random actions,
1 = the scripted reference). Mean over seeds, with the lowest and the highest. Tasks that are
learned sooner get fewer than 1 M steps. Published: the Entity Neural Network project at 1 M steps,
the one setting it adopted for all tasks / the best of about 720.

| task | steps | seeds | training | evaluation | score | reference | published | CPU s |
|---|---|---|---|---|---|---|---|---|
"""

TRANSFER = """
## The same weights on more entities

Return of 200 episodes with the most probable action, beside the scripted reference on the same
instances, and the share of it: of the way from random actions to the reference. In Coverage, each
agent to its nearest landmark returns -8.8, -5.8, -4.1 and -2.9 with 3, 8, 16 and 32 agents.

| task | size | trained | reference | share |
|---|---|---|---|---|
"""


#: What other commands measured, as file -> text above its table.
OTHERS = {
    "architectures": """
## Attention, pooling only, flattened

`python -m benchmarks.learning.architectures`: the same trainer and as many parameters. Pooling only
keeps the layers, but an entity meets the mean of all instead of attending; flattened is an MLP on
all slots side by side. Return of 200 evaluation episodes, mean over seeds, lowest and highest.

![Learning curves of the three on LockChain and PickMatchingBalls](architectures.png)

""",
    "highway-v0": """
## highway-env

`python examples/highway.py --seeds 2`: PPO of Stable-Baselines3 with the settings of highway-env's
own attention script, only the extractor differs; all see rows sorted by distance. Return of 20
evaluation episodes a seed, which differ among themselves by the standard deviations given.

""",
    "intersection-v0": """
`python examples/highway.py --env intersection-v0 --steps 4096 --seeds 2`, the same:

""",
}


def result_path(name: str, seed: int) -> Path:
    """Return where the result of one seed stands."""
    return RESULTS / "learning" / f"{name.lower()}-{seed}.json"


def load_results() -> list[Row]:
    """Read every result that is there."""
    found = sorted((RESULTS / "learning").glob("*.json"))
    return [json.loads(path.read_text()) for path in found]


def write_table() -> str:
    """Write `docs/results/learning.md` and return its text."""
    rows = load_results()
    by_task = {name: [row for row in rows if row["task"] == name] for name in TASKS}
    lines = [_summary(name, mine) for name, mine in by_task.items() if mine]
    text = HEAD + "\n".join(lines) + "\n"
    moved = [line for name, mine in by_task.items() for line in _transfers(name, mine)]
    if moved:
        text += TRANSFER + "\n".join(moved) + "\n"
    for name, head in OTHERS.items():
        path = RESULTS / f"{name}.md"
        text += head + path.read_text() if path.exists() else ""
    text += _pictures()
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "learning.md").write_text(text)
    return text


def _pictures() -> str:
    found = [name for name in TASKS if (RESULTS / f"learning-{name.lower()}.png").exists()]
    lines = [f"![{name}](learning-{name.lower()}.png)" for name in found]
    return "\n## Learning curves\n\n" + "\n".join(lines) + "\n" if lines else ""


def write_plots() -> None:
    """Draw the learning curves of each task, with a band over its seeds."""
    from entity_encoder.agents.plots import plot_runs

    for name in TASKS:
        runs = sorted(RUNS.glob(f"{name.lower()}-seed*"))
        if runs:
            plot_runs(
                runs, RESULTS / f"learning-{name.lower()}", tags=["episode/return"], title=name
            )


def _summary(name: str, rows: list[Row]) -> str:
    task = TASKS[name]
    published = " / ".join("" if x is None else f"{x:g}" for x in (task.default, task.best))
    reference = [row["reference"]["return"]["mean"] for row in rows if row.get("reference")]
    scores = [row["deterministic"]["score"]["mean"] for row in rows]
    cells = [
        name,
        f"{max(row['steps'] for row in rows):,}",
        ", ".join(str(row["seed"]) for row in rows),
        spread([row["training_return"] for row in rows]),
        spread([row["deterministic"]["return"]["mean"] for row in rows]),
        spread(scores),
        f"{np.mean(reference):.3f}" if reference else "",
        published if task.default is not None else "",
        f"{np.mean([row['cpu_seconds'] for row in rows]):,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _transfers(name: str, rows: list[Row]) -> list[str]:
    lines = []
    for size in TASKS[name].larger:
        found = [row["transfer"][size] for row in rows if size in row.get("transfer", {})]
        if found:
            trained = [one["trained"]["return"]["mean"] for one in found]
            reference = [one["reference"]["return"]["mean"] for one in found]
            share = np.mean([_share(one) for one in found])
            cells = [name, size, spread(trained), f"{np.mean(reference):.3f}", f"{share:.0%}"]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _share(one: Row) -> float:
    """Score of the trained policy, with that of the reference at this size as the whole."""
    trained, reference = (one[kind]["score"]["mean"] for kind in ("trained", "reference"))
    return float(trained / reference)


def spread(values: list[float]) -> str:
    """Write the mean, with the lowest and the highest."""
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
