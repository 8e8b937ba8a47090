"""Play a task by keyboard, where there is a display."""

from __future__ import annotations

import argparse

from entity_encoder.agents.cli.defaults import DEFAULT_TASK
from entity_encoder.agents.cli.options import key_values
from entity_encoder.agents.cli.tasks import describe_task

__all__ = ["add_options", "run"]

EXAMPLES = f"""examples:
  entity-encoder play                                {DEFAULT_TASK}
  entity-encoder play Entity/FloorIsLava-v0 --seed 3
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("env", nargs="?", default=DEFAULT_TASK, help=f"default: {DEFAULT_TASK}")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="option of it")
    parser.add_argument("--seed", type=int, help="of the first episode")


def run(options: argparse.Namespace) -> int:
    """Play, and print what was reached."""
    from entity_encoder.agents.play import PlayWindow, play

    env_kwargs = key_values(options.env_arg)
    task = describe_task(options.env, env_kwargs)
    window = PlayWindow(f"{task.id}: {task.description}")
    try:
        returns = play(options.env, window, env_kwargs=env_kwargs, seed=options.seed)
    finally:
        window.close()
    if returns:
        print(f"{len(returns)} episodes, mean return {sum(returns) / len(returns):.3g}")
        print(f"random {task.random_return}, scripted reference {task.reference_return}")
    return 0
