"""Train one seed of a task, evaluate what it learned, and try it on larger instances."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning.tasks import TASKS
from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.evaluate import evaluate, reference_policy
from entity_encoder.agents.making import make_environments

__all__ = ["RUNS", "train_once", "transfer"]

RUNS = Path("runs/learning")


def train_once(
    name: str, seed: int, *, steps: int | None = None, episodes: int = 200
) -> dict[str, Any]:
    """Train one seed, or finish it, and evaluate what it learned."""
    task = TASKS[name]
    run_dir = RUNS / f"{name.lower()}-seed{seed}"
    checkpoint = run_dir / "checkpoint"
    wall, cpu = time.perf_counter(), cpu_seconds()
    if checkpoint.exists():
        agent = PPO.load(checkpoint)
    else:
        config = PPOConfig(total_steps=steps or task.steps, seed=seed)
        agent = PPO(f"Entity/{task.env}-v0", config, run_dir=run_dir, env_kwargs=task.kwargs)
    agent.learn()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    greedy = agent.evaluate(episodes=episodes)
    sampled = agent.evaluate(episodes=episodes, deterministic=False)
    return {
        "task": name,
        "seed": seed,
        "steps": agent.steps,
        "training_return": agent.episodes.mean("total"),  # the last 100 episodes
        "deterministic": greedy.to_dict(),
        "sampled": sampled.to_dict(),
        "reference": reference_return(task.env, task.kwargs, episodes),
        "optimum": task.optimum,
        "published_default": task.default,
        "published_best": task.best,
        "transfer": transfer(agent, name, episodes=episodes),
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
    }


def transfer(agent: PPO, name: str, *, episodes: int = 200) -> dict[str, Any]:
    """Evaluate the same weights on larger instances, beside the scripted reference there."""
    task, found = TASKS[name], {}
    for size, options in task.larger.items():
        kwargs = {**task.kwargs, **options}
        result = agent.evaluate(episodes=episodes, env_kwargs=kwargs).to_dict()
        reference = reference_return(task.env, kwargs, episodes)
        found[size] = {"trained": result, "reference": reference}
    return found


def reference_return(env: str, kwargs: Mapping[str, Any], episodes: int) -> dict[str, Any]:
    """Return what the scripted policy achieves."""
    vector = make_environments(
        f"Entity/{env}-v0", num_envs=min(64, episodes), env_kwargs=dict(kwargs)
    )
    envs = Environments(vector)
    try:
        return evaluate(reference_policy(envs), envs, episodes).to_dict()
    finally:
        envs.close()


def cpu_seconds() -> float:
    """CPU time of this process and its children so far."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
