"""Environments beside single ones: `python -m benchmarks.envs [--quick] [--json FILE]`.

Each task steps E environments as one batch, with and without observation, and beside it
`gymnasium.vector.SyncVectorEnv` steps as many single environments of the same task from
`gymnasium.make`, without its passive checker. These are batches of one: the same rules and the
same results, but much of their time goes into calls on small tensors. So Minefield is also
compared with `benchmarks.plain_minefield`, a single environment in plain NumPy.

The unit is environment steps per CPU-second of one thread. Only `step` is timed; random legal
actions are drawn outside. Without observation means that the time which `observation()` takes in
the same state is taken off. Contenders take turns, and a row holds medians over the rounds: on a
shared machine only ratios mean something.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium.vector import SyncVectorEnv

from benchmarks.plain_minefield import PlainMinefield
from entity_encoder.envs import TASKS
from entity_encoder.envs.driver import Driver

__all__ = ["SINGLES", "Row", "Stepper", "main", "measure"]

SIZES = (1, 64, 1024, 4096)
WARM_UP = 30  # steps, so that episodes no longer begin all at once
SYNC_WARM_UP = 5  # a step of thousands of single environments takes seconds


@dataclass(frozen=True)
class Row:
    """One line of the result; speeds in environment steps per CPU-second."""

    task: str
    num_envs: int
    with_observation: float
    without_observation: float
    single: str  # kind of the single environments, a key of SINGLES
    sync_envs: int  # their number in SyncVectorEnv; less than num_envs with --quick
    sync: float
    times_sync: float


class Stepper:
    """Step a vector environment and look at the clock.

    Args:
        env: Any vector environment of an entity task.
        warm_up: Steps before the first measurement.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any], warm_up: int) -> None:
        self._env = env
        self._driver = Driver(env)
        self._driver.seed_actions(0)
        self._observation = self._driver.reset(0)
        self.run(0.0, warm_up)

    def run(
        self, budget: float, least: int = 1, after: Callable[[], object] | None = None
    ) -> tuple[float, float]:
        """Step for some CPU-seconds.

        Args:
            budget: CPU-seconds in `step`.
            least: Steps at least.
            after: Called after each step and timed apart.

        Returns:
            CPU-seconds of one step of one environment, and of one call of `after` likewise.
        """
        steps, stepping, following = 0, 0.0, 0.0
        while stepping < budget or steps < least:
            action = self._draw()
            begin = time.process_time()
            self._observation = self._env.step(action)[0]
            end = time.process_time()
            stepping += end - begin
            steps += 1
            if after is not None:
                after()
                following += time.process_time() - end
        return stepping / (steps * self._env.num_envs), following / (steps * self._env.num_envs)

    def _draw(self) -> Any:
        if self._driver.legal(self._observation) is None:
            return self._env.action_space.sample()  # all at once: leaves the processor's caches be
        return self._driver.sample(self._observation)


def make_single(task: str) -> gymnasium.Env[Any, Any]:
    """Build a single environment as a user of gymnasium would."""
    return gymnasium.make(f"Entity/{task}-v0", disable_env_checker=True)


#: How single environments are made, by what a row calls them.
SINGLES: dict[str, Callable[[str], gymnasium.Env[Any, Any]]] = {
    "gymnasium.make": make_single,
    "plain NumPy": lambda _: PlainMinefield(),
}


def kinds(task: str) -> list[str]:
    """Return with what single environments a task is compared."""
    return list(SINGLES) if task == "Minefield" else ["gymnasium.make"]


def measure(
    task: str, num_envs: int, single: str, sync_envs: int, *, rounds: int, budget: float
) -> Row:
    """Measure one task at one number of environments."""
    batch: Any = gymnasium.make_vec(f"Entity/{task}-v0", num_envs=num_envs)
    sync = SyncVectorEnv([partial(SINGLES[single], task)] * sync_envs)
    ours, theirs = Stepper(batch, WARM_UP), Stepper(sync, SYNC_WARM_UP)
    seconds = []
    for _ in range(rounds):
        step, observation = ours.run(budget, after=batch.unwrapped.observation)
        seconds.append((step, max(step - observation, 1e-9), theirs.run(budget)[0]))
    with_, without, alone = map(statistics.median, zip(*seconds, strict=True))
    return Row(
        task=task,
        num_envs=num_envs,
        with_observation=1 / with_,
        without_observation=1 / without,
        single=single,
        sync_envs=sync_envs,
        sync=1 / alone,
        times_sync=alone / with_,
    )


def print_row(row: Row) -> None:
    """Print a line of the table."""
    print(
        f"{row.task:20}{row.num_envs:6,} envs {row.with_observation:12,.0f} steps/s "
        f"{row.without_observation:12,.0f} without observation, "
        f"{row.times_sync:6,.1f} times SyncVectorEnv ({row.sync_envs:,} x {row.single}: "
        f"{row.sync:,.0f})",
        flush=True,
    )


def main(argv: list[str] | None = None) -> list[Row]:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}")
    parser.add_argument(
        "--quick", action="store_true", help="1 and 1,024 envs beside 16 single ones: a minute"
    )
    parser.add_argument("--json", metavar="FILE", help="write one flat object a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.5, help="CPU-seconds per measurement")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.tasks) - set(TASKS)):
        parser.error(f"TASK must be among {', '.join(TASKS)}, got {', '.join(unknown)}")
    torch.set_num_threads(1)
    budget, most = (0.15, 16) if args.quick else (args.budget, max(SIZES))
    rows: list[Row] = []
    for task in args.tasks or TASKS:
        for num_envs, single in product((1, 1024) if args.quick else SIZES, kinds(task)):
            sync_envs = min(num_envs, most)
            row = measure(task, num_envs, single, sync_envs, rounds=args.rounds, budget=budget)
            print_row(row)
            rows.append(row)
            gc.collect()  # thousands of single environments
            if args.json:
                Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return rows


if __name__ == "__main__":
    main()
