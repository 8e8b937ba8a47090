"""Attention against pooling only and a flat network: `python -m benchmarks.learning.architectures`.

LockChain and PickMatchingBalls, the same trainer, the same steps, as many parameters: the policies
differ in nothing but how entities reach each other.

- `attention`: `PPOConfig()`.
- `pooling`: the same layers, in which an entity meets the mean of all instead of attending.
- `flat`: all slots side by side through an MLP.

The other two are as wide as the parameters of the first allow.

Results and curves go to `docs/results/architectures.json`, a run at a time, and what stands there
is not run again; the table and the plot are drawn from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.flat import Flattened
from benchmarks.learning.table import spread
from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.curves import Curve, read_curves
from entity_encoder.agents.making import make_environments

__all__ = ["ARMS", "draw", "main", "make_agent", "table"]

RESULTS = Path("docs/results/architectures.json")
TASKS = ("LockChain", "PickMatchingBalls")
ARMS = ("attention", "pooling", "flat")
LABELS = {"attention": "attention", "pooling": "pooling only", "flat": "flattened, MLP"}
Row = dict[str, Any]


def make_agent(task: str, arm: str, config: PPOConfig, run_dir: Path | None = None) -> PPO:
    """Return the trainer of one arm, its policy of the size that attention has."""
    env_id = f"Entity/{task}-v0"
    if arm == "attention":
        return PPO(env_id, config, run_dir=run_dir)
    env = _flat(env_id, config) if arm == "flat" else env_id
    settings: dict[str, Any] = {"core": "pool"}
    if arm == "flat":  # a set of one: embedding, activation, then a hidden layer in each head
        settings = {"n_layers": 0, "n_heads": 1}
    size = parameters(make_agent(task, "attention", config))
    width = config.d_model
    while parameters(PPO(env, _widen(config, width + 4, settings))) <= size:
        width += 4
    return PPO(env, _widen(config, width, settings), run_dir=run_dir)


def _widen(config: PPOConfig, width: int, settings: dict[str, Any]) -> PPOConfig:
    hidden = (width,) if settings.get("n_layers") == 0 else ()
    return dataclasses.replace(config, d_model=width, hidden=hidden, **settings)


def _flat(env_id: str, config: PPOConfig) -> Flattened:
    return Flattened(make_environments(env_id, num_envs=config.num_envs))


def parameters(agent: PPO) -> int:
    """Count the parameters of the policy and the value function."""
    return sum(parameter.numel() for parameter in agent.policy.parameters())


def run(task: str, arm: str, seed: int, steps: int, episodes: int) -> Row:
    """Train and evaluate one arm on one seed."""
    config = PPOConfig(total_steps=steps, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        agent = make_agent(task, arm, config, Path(folder))
        agent.learn()
        curve = read_curves(folder)["episode/return"]
    env_id = f"Entity/{task}-v0"
    played = agent.evaluate(
        episodes=episodes, env=_flat(env_id, config) if arm == "flat" else env_id
    )
    return {
        "task": task,
        "arm": arm,
        "seed": seed,
        "steps": agent.steps,
        "parameters": parameters(agent),
        "return": played.returns.mean,
        "curve": [[int(s) for s in curve.steps], [round(float(v), 4) for v in curve.values]],
    }


def table(rows: Sequence[Row]) -> str:
    """Show the mean return over seeds, with the lowest and the highest."""
    lines = ["| task | policy | parameters | steps | seeds | return |", "|---|---|---|---|---|---|"]
    for task in TASKS:
        for arm in ARMS:
            mine = [row for row in rows if (row["task"], row["arm"]) == (task, arm)]
            if mine:
                cells = [task, LABELS[arm], f"{mine[0]['parameters']:,}", f"{mine[0]['steps']:,}"]
                cells += [str(len(mine)), spread([row["return"] for row in mine])]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[Row], out: Path) -> list[Path]:
    """Draw the learning curves of all arms, a panel a task."""
    from entity_encoder.agents.plots import draw_curves

    panels = {
        task: {
            LABELS[arm]: [
                Curve(*map(np.array, row["curve"]))
                for row in rows
                if (row["task"], row["arm"]) == (task, arm)
            ]
            for arm in ARMS
        }
        for task in TASKS
    }
    return draw_curves(panels, out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is missing, print the table, draw the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=204_800)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--json", type=Path, default=RESULTS, help="file of the results")
    args = parser.parse_args(argv)
    rows: list[Row] = json.loads(args.json.read_text()) if args.json.exists() else []
    for seed in args.seeds:
        for task in TASKS:
            for arm in ARMS:
                key = {"task": task, "arm": arm, "seed": seed}
                if any(key.items() <= row.items() for row in rows):
                    continue
                rows.append(run(task, arm, seed, args.steps, args.episodes))
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(rows) + "\n")
    print(table(rows))
    args.json.with_suffix(".md").write_text(table(rows) + "\n")
    draw(rows, args.json.with_suffix(""))


if __name__ == "__main__":
    main()
