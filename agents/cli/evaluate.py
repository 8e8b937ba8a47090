"""Play episodes with a trained policy and say how well it does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entity_encoder.agents.cli.defaults import DEFAULT_TASK, find_checkpoint
from entity_encoder.agents.cli.options import key_values
from entity_encoder.agents.cli.tasks import describe_task

if TYPE_CHECKING:
    from entity_encoder.agents.environments import Environments

__all__ = ["add_options", "run"]

EXAMPLES = f"""examples:
  entity-encoder eval runs/minefield-seed1
  entity-encoder eval runs/minefield-seed1 --sampled --episodes 1000 --json
  entity-encoder eval runs/minefield-seed1 --env-arg max_mines=40      more entities than trained on
  entity-encoder eval runs/minefield-seed1 --video play.gif
  entity-encoder eval --policy reference --env {DEFAULT_TASK}
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", nargs="?", help="run directory, or a checkpoint in one")
    parser.add_argument("--env", help="another environment than trained on")
    parser.add_argument(
        "--env-arg",
        action="append",
        metavar="KEY=VALUE",
        help="option of the environment, on top of those trained with",
    )
    parser.add_argument(
        "--policy",
        choices=("trained", "random", "reference"),
        default="trained",
        help="who plays: the run, random legal actions, or the task's scripted policy",
    )
    parser.add_argument("--episodes", type=int, default=100, help="default: 100")
    parser.add_argument(
        "--sampled", action="store_true", help="draw actions instead of taking the most probable"
    )
    parser.add_argument("--seed", type=int, help="of environments and drawn actions")
    parser.add_argument("--num-envs", type=int, default=64, help="stepped together (default: 64)")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.add_argument("--video", metavar="FILE", help="record episodes as .gif or .mp4")
    parser.add_argument(
        "--video-episodes", type=int, default=3, help="how many are recorded (default: 3)"
    )
    parser.add_argument("--fps", type=float, help="of the video; default: the environment's own")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Evaluate, print, and record when asked to."""
    from entity_encoder.agents.evaluate import EVALUATION_SEED, evaluate
    from entity_encoder.agents.video import check_video_path

    if options.video:
        check_video_path(options.video)
    if options.num_envs < 1:
        raise ValueError(f"--num-envs must be at least 1, got {options.num_envs}")
    policy, env, env_kwargs = _player(options)
    seed = EVALUATION_SEED if options.seed is None else options.seed
    envs = _environments(policy, env, env_kwargs, options)
    try:
        result = evaluate(
            _as_policy(policy, envs),
            envs,
            options.episodes,
            deterministic=not options.sampled,
            seed=seed,
        )
    finally:
        envs.close()
    video = _record(policy, env, env_kwargs, seed, options) if options.video else None
    if options.json:
        about = {"env": env, "env_kwargs": env_kwargs, "policy": options.policy}
        found = {**about, **result.to_dict(), "video": None if video is None else str(video)}
        print(json.dumps(found))
    else:
        print(f"{env}: {result}")
        print(f"  video    {video}" if video else "", end="\n" if video else "")
    return 0


def _player(options: argparse.Namespace) -> tuple[Any, str, dict[str, Any]]:
    """Return the policy (or the name of an untrained one), the environment id and its options."""
    from entity_encoder.agents.checkpoint import load_checkpoint
    from entity_encoder.agents.saved import load_policy

    given = key_values(options.env_arg)
    if options.policy != "trained":
        env = options.env or DEFAULT_TASK
        describe_task(env, given)
        return options.policy, env, given
    if options.run is None:
        raise ValueError(
            "run must be a run directory, got nothing; or play untrained with --policy random"
        )
    saved = load_checkpoint(find_checkpoint(options.run))
    made = saved.about["env"] or {"id": None, "kwargs": {}}
    env = options.env or made["id"]
    if env is None:
        raise ValueError(
            "--env must be given for this run, which was trained on environment objects"
        )
    kwargs = {**(made["kwargs"] if env == made["id"] else {}), **given}
    describe_task(env, kwargs)
    return load_policy(saved, device=options.device), env, kwargs


def _environments(
    policy: Any, env: str, env_kwargs: dict[str, Any], options: argparse.Namespace
) -> Environments:
    from entity_encoder.agents.environments import Environments
    from entity_encoder.agents.making import make_environments
    from entity_encoder.agents.saved import show_to

    vector = make_environments(
        env,
        num_envs=min(options.num_envs, max(1, options.episodes)),
        device=options.device,
        env_kwargs=env_kwargs,
    )
    if isinstance(policy, str):
        return Environments(vector, device=options.device)
    return show_to(policy, vector, device=options.device)


def _as_policy(policy: Any, envs: Environments) -> Any:
    """Bind an untrained policy to the environments."""
    from entity_encoder.agents.evaluate import random_policy, reference_policy

    if isinstance(policy, str):
        return {"random": random_policy, "reference": reference_policy}[policy](envs)
    return policy


def _record(
    policy: Any, env: str, env_kwargs: dict[str, Any], seed: int, options: argparse.Namespace
) -> Path:
    from entity_encoder.agents.recording import make_visible, record
    from entity_encoder.agents.video import save_video

    trained = None if isinstance(policy, str) else policy
    envs = make_visible(env, env_kwargs, policy=trained, device=options.device)
    try:
        frames, _ = record(
            _as_policy(policy, envs),
            envs,
            episodes=options.video_episodes,
            deterministic=not options.sampled,
            seed=seed,
        )
        usual = envs.env.metadata.get("render_fps", 15)
    finally:
        envs.close()
    return save_video(options.video, frames, fps=options.fps or usual)
