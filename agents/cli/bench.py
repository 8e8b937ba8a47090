"""Measure how fast this machine trains a task, and where the time goes."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from entity_encoder.agents.cli.defaults import DEFAULT_TASK
from entity_encoder.agents.cli.options import key_values
from entity_encoder.agents.cli.tasks import describe_task

__all__ = ["add_options", "measure", "run"]

EXAMPLES = f"""examples:
  entity-encoder bench                                        {DEFAULT_TASK}
  entity-encoder bench Entity/CherryPick-v0 --num-envs 256 --json
  entity-encoder bench --device cuda --num-envs 4096
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("env", nargs="?", default=DEFAULT_TASK, help=f"default: {DEFAULT_TASK}")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="option of it")
    parser.add_argument("--num-envs", type=int, default=64, help="default: 64")
    parser.add_argument("--rollout-steps", type=int, default=128, help="default: 128")
    parser.add_argument(
        "--iterations", type=int, default=3, help="measured ones, after one to warm up (default: 3)"
    )
    parser.add_argument("--device", default="auto", help="default: auto")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; 0 chooses")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    if options.iterations < 1:
        raise ValueError(f"--iterations must be at least 1, got {options.iterations}")
    env_kwargs = key_values(options.env_arg)
    describe_task(options.env, env_kwargs)
    found = measure(
        options.env,
        env_kwargs,
        iterations=options.iterations,
        num_envs=options.num_envs,
        rollout_steps=options.rollout_steps,
        device=options.device,
        threads=options.threads,
    )
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{options.env} on {found['device']}, {found['num_envs']} environments")
    print(f"  {found['steps_per_second']:>12,.0f} environment steps per second")
    print(f"  {found['steps_per_cpu_second']:>12,.0f} per second of CPU time")
    print(f"  {found['entities_per_second']:>12,.0f} entities per second")
    shares = (f"{name} {found[f'{name}_share']:.0%}" for name in PHASES)
    print(f"  {'time':>12} {', '.join(shares)}")
    return 0


PHASES = ("environment", "inference", "update")


def measure(
    env: str, env_kwargs: dict[str, Any], *, iterations: int, **settings: Any
) -> dict[str, Any]:
    """Train for a few iterations and time them.

    Args:
        env: Environment id.
        env_kwargs: Its options.
        iterations: Measured ones; one more warms up first.
        settings: Fields of `PPOConfig`.
    """
    from entity_encoder.agents.config import PPOConfig
    from entity_encoder.agents.ppo import PPO

    rollout = settings["num_envs"] * settings["rollout_steps"]
    config = PPOConfig(**settings, total_steps=rollout * (iterations + 1))
    times: list[tuple[float, float]] = []
    rows: list[dict[str, float]] = []

    def note(_: PPO, metrics: Any) -> None:
        times.append((time.perf_counter(), time.process_time()))
        rows.append(dict(metrics))

    agent = PPO(env, config, env_kwargs=env_kwargs, callbacks=[note], progress=False)
    before = agent.steps
    agent.learn()
    wall, cpu = (last - first for first, last in zip(times[0], times[-1], strict=True))
    # Rows that only reset an environment are no steps, so there may be more iterations than asked.
    measured = len(rows) - 1
    steps = (agent.steps - before) * measured / len(rows)
    needed = ("entities/present", *(f"time/{name}" for name in PHASES))
    mean = {key: sum(row[key] for row in rows[1:]) / measured for key in needed}
    agent.envs.close()
    return {
        "env": env,
        "device": str(agent.device),
        "num_envs": agent.envs.num_envs,
        "iterations": measured,
        "steps_per_second": steps / wall,
        "steps_per_cpu_second": steps / cpu,
        "entities_per_second": mean["entities/present"] * steps / wall,
        **{f"{name}_share": mean[f"time/{name}"] for name in PHASES},
    }
