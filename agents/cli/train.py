"""Train a policy, on the default task when none is named."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entity_encoder.agents import checkpoint
from entity_encoder.agents.calling import command
from entity_encoder.agents.cli.defaults import DEFAULT_TASK, find_checkpoint, new_run_dir
from entity_encoder.agents.cli.options import (
    add_config_options,
    config_overrides,
    key_values,
    whole_number,
)
from entity_encoder.agents.cli.tasks import describe_task, references_of
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.presets import config_for
from entity_encoder.agents.progress import format_seconds

if TYPE_CHECKING:
    from entity_encoder.agents.evaluate import EvaluationResult
    from entity_encoder.agents.ppo import PPO

__all__ = ["add_options", "report", "run", "summary"]

EXAMPLES = f"""examples:
  entity-encoder train                                        {DEFAULT_TASK}
  entity-encoder train Entity/CherryPick-v0 --seed 3 --total-steps 1e6
  entity-encoder train Entity/Minefield-v0 --env-arg max_mines=20 --target-score 0.95
  entity-encoder train Entity/FloorIsLava-v0 --total-steps 20_000 --run-dir runs/lava
  entity-encoder train --resume runs/lava --total-steps 40_000

Settings that are not given come from the task's preset, if it has one, and else from the
defaults below; a resumed run keeps its own. ENTITY_ENCODER_TRACEBACK=1 shows where an error arose.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = "entity-encoder train [ENV] [--resume [RUN_DIR]] [options]"
    parser.add_argument(
        "env", nargs="?", help=f"environment id; entity-encoder envs lists them ({DEFAULT_TASK})"
    )
    parser.add_argument(
        "--env-arg",
        action="append",
        metavar="KEY=VALUE",
        help="option of the environment; may be given several times",
    )
    parser.add_argument(
        "--run-dir", type=Path, help="for log and checkpoints (default: runs/<task>-seed<seed>)"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=True,
        metavar="RUN_DIR",
        help="continue this run, or the one in --run-dir",
    )
    parser.add_argument(
        "--eval-episodes",
        type=int,
        default=100,
        metavar="N",
        help="episodes of the final evaluation; 0 leaves it out (default: 100)",
    )
    for name, what in (
        ("evaluate", "evaluations"),
        ("film", "films of the policy"),
        ("attention", "pictures of its attention"),
        ("histogram", "histograms of weights, gradients and activations"),
        ("embedding", "tables of its entities for the projector"),
    ):
        parser.add_argument(
            f"--{name}-every",
            type=whole_number,
            default=0,
            metavar="STEPS",
            help=f"steps between {what} in TensorBoard; 0 = none (default: 0)",
        )
    parser.add_argument(
        "--profile",
        type=int,
        default=0,
        metavar="N",
        help="iterations to profile, for the text tab and a trace file (default: 0)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON on standard output"
    )
    add_config_options(parser.add_argument_group("settings"), PPOConfig)


def run(options: argparse.Namespace) -> int:
    """Train, evaluate, and say what came of it."""
    from entity_encoder.agents.callbacks import Evaluation

    if options.eval_episodes < 0:
        raise ValueError(f"--eval-episodes must not be negative, got {options.eval_episodes}")
    watching = _watching(options)
    evaluation = Evaluation(options.evaluate_every, options.eval_episodes)
    agent = _resumed(options) if options.resume else _new(options)
    agent.callbacks += [evaluation, *watching] if options.eval_episodes else watching
    before = agent.steps
    agent.learn()
    result = evaluation.result
    if not agent.ranks.first:
        return 0
    print(report(agent, result), file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps(summary(agent, result, agent.steps - before)))
    return 0


def report(agent: PPO, result: EvaluationResult | None) -> str:
    """Write the last lines of a training: what was reached, and what to do next."""
    speed = agent.steps / agent.seconds if agent.seconds else 0.0
    took = f"{format_seconds(agent.seconds)}, {speed:,.0f} steps/s"
    lines = ["", f"{_name(agent)}: trained for {agent.steps:,} steps ({took})"]
    references = references_of(agent.envs.env.unwrapped)
    if result is not None:
        lines.append(f"  return       {result.returns} over {len(result.episodes)} episodes")
    if references is not None:
        low, high = references
        lines.append(f"  reference    {high:g} by the scripted policy, {low:g} by random actions")
        if result is not None:
            score = _reached(result, references)
            lines.append(f"  score        {score:.1%} of the way from random to scripted")
    if agent.run_dir is not None:
        say, run_dir = command(), agent.run_dir
        longer = 2 * agent.config.total_steps
        lines += [
            f"  checkpoint   {run_dir / 'checkpoint'}",
            f"  TensorBoard  {say} watch {run_dir}",
            f"  evaluate     {say} eval {run_dir} --video {run_dir / 'play.gif'}",
            f"  resume       {say} train --resume {run_dir} --total-steps {longer}",
        ]
    return "\n".join(lines)


def summary(agent: PPO, result: EvaluationResult | None, steps: int) -> dict[str, Any]:
    """Return the same as plain values.

    Args:
        agent: The trained agent.
        result: Of the final evaluation.
        steps: Steps that this call added.
    """
    references = references_of(agent.envs.env.unwrapped)
    low, high = references or (None, None)
    known = result is not None and references is not None
    return {
        "env": agent.env_description,
        "run_dir": None if agent.run_dir is None else str(agent.run_dir),
        "steps": agent.steps,
        "steps_of_this_call": steps,
        "seconds": agent.seconds,
        "random_return": low,
        "reference_return": high,
        "reached": _reached(result, references) if known else None,
        "evaluation": None if result is None else result.to_dict(),
    }


def _watching(options: argparse.Namespace) -> list[Any]:
    """Return the callbacks that were asked for."""
    from entity_encoder.agents.callbacks import (
        AttentionMaps,
        Embeddings,
        Film,
        Histograms,
        Profile,
    )

    asked = {
        Film: options.film_every,
        AttentionMaps: options.attention_every,
        Histograms: options.histogram_every,
        Embeddings: options.embedding_every,
        Profile: options.profile,
    }
    return [make(every) for make, every in asked.items() if every]


def _new(options: argparse.Namespace) -> PPO:
    from entity_encoder.agents.ppo import PPO

    env = options.env or DEFAULT_TASK
    env_kwargs = key_values(options.env_arg)
    describe_task(env, env_kwargs)
    config = config_for(env, **config_overrides(options, PPOConfig))
    run_dir = options.run_dir or new_run_dir(env, config.seed)
    if checkpoint.exists(run_dir / "checkpoint"):
        raise ValueError(
            f"--run-dir must be new, got {str(run_dir)!r} with a checkpoint in it; continue it "
            f"with --resume {run_dir}, or name another"
        )
    return PPO(env, config, run_dir=run_dir, env_kwargs=env_kwargs)


def _resumed(options: argparse.Namespace) -> PPO:
    from entity_encoder.agents.ppo import PPO

    if options.env:
        raise ValueError(
            f"environment must not be named with --resume, got {options.env!r}; a run keeps its own"
        )
    path = options.run_dir if options.resume is True else options.resume
    if path is None:
        raise ValueError("--resume must name a run directory, or stand with --run-dir; got neither")
    changes = config_overrides(options, PPOConfig)
    return PPO.load(find_checkpoint(path), env_kwargs=key_values(options.env_arg), **changes)


def _name(agent: PPO) -> str:
    made = agent.env_description
    return "environment" if made is None else str(made["id"])


def _reached(result: Any, references: Any) -> float:
    """Return the share of the way from random to scripted: the mean score."""
    low, high = references
    return float((result.returns.mean - low) / (high - low))
