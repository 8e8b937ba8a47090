"""Train on few entities, act among many: no weight depends on their number.

Triage: jobs have a weight and a deadline, one is done each step, and a return of 1 is the optimum.

python examples/transfer.py                            # 4-8 jobs, then up to 64
python examples/transfer.py --steps 500_000 --jobs 8 32 128
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from entity_encoder.agents import PPO, PPOConfig, evaluate
from entity_encoder.envs import find_task

TASK = "Entity/Triage-v0"


def rule_of_thumb(observation: dict[str, Any]) -> torch.Tensor:
    """Do the job of the greatest weight per step that is left for it, (E,)."""
    weight, slack = observation["job"].unbind(-1)  # (E, jobs) each
    return (weight / slack.clamp(min=1)).masked_fill(~observation["job_mask"], -1).argmax(1)


def main(arguments: Sequence[str] | None = None) -> dict[int, float]:
    """Train on few jobs and evaluate on more; return the mean return by number of jobs."""
    parser = argparse.ArgumentParser(description="Train on few jobs, evaluate on many.")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--episodes", type=int, default=200)
    args = parser.parse_args(arguments)

    agent = PPO(TASK, PPOConfig(total_steps=args.steps), env_kwargs={"max_jobs": 8}).learn()
    triage: Any = find_task("Triage")
    found = {}
    print("   jobs   policy  weight per step  random")
    for jobs in args.jobs:
        counts = {"max_jobs": jobs, "min_jobs": max(2, jobs // 2)}
        found[jobs] = agent.evaluate(args.episodes, env_kwargs=counts).returns.mean
        env = triage(64, output="torch", autoreset_mode="SameStep", **counts)
        rule = evaluate(rule_of_thumb, env, args.episodes).returns.mean
        print(f"{jobs:7}  {found[jobs]:7.3f}  {rule:15.3f}  {env.random_return:6.3f}")
    return found


if __name__ == "__main__":
    main()
