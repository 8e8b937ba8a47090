"""What a run says of itself: what was chosen and why, how far it is, what it measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from entity_encoder.agents.iteration import Iteration
from entity_encoder.agents.monitor import Monitor, is_known_tag
from entity_encoder.agents.progress import Progress

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["choices", "log", "open_monitor"]


def open_monitor(agent: PPO) -> Monitor:
    """Open the log of the agent's run directory where the run stands now."""
    begin = agent.steps + 1 if agent.steps else None
    enabled = agent.run_dir is not None and agent.ranks.first
    monitor = Monitor(agent.run_dir or ".", resume_step=begin, enabled=enabled)
    monitor.describe({"env": agent.env_description, **agent.config.to_dict()}, begin or 0)
    return monitor


def choices(agent: PPO) -> list[str]:
    """Say what was chosen automatically, and why."""
    config = agent.config
    size = config.samples_per_minibatch
    lines = [
        f"device: {agent.device}" + (" (auto)" if config.device == "auto" else ""),
        f"rollout: {agent.envs.num_envs} environments x {config.rollout_steps} steps",
        f"minibatch: at most {size:,} of {config.rollout_size:,} samples",
    ]
    if agent.ranks.size > 1:
        lines.append(f"processes: {agent.ranks.size}, each with environments of its own")
    if agent.steps:
        lines.append(f"resumed at {agent.steps:,} steps")
    return lines + [f"not exact: {note}" for note in agent.notes]


def log(agent: PPO, done: Iteration, monitor: Monitor, progress: Progress) -> None:
    """Report an iteration to TensorBoard and on the screen."""
    known = {tag: value for tag, value in done.metrics.items() if is_known_tag(tag)}
    monitor.scalars(known, agent.steps)
    recent, score = agent.episodes.mean("total"), agent.episodes.mean("score")
    progress.update(
        agent.steps,
        entities=done.entities,
        episode_return=None if np.isnan(recent) else recent,
        score=None if np.isnan(score) else score,
    )
