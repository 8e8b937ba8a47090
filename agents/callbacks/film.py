"""Show what the policy does, as a moving picture."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from entity_encoder.agents.callbacks.clock import Clock
from entity_encoder.agents.recording import make_visible, record

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Film"]

logger = logging.getLogger(__name__)


class Film:
    """Show episodes of the deterministic policy in TensorBoard's images tab.

    Args:
        every: Environment steps between two films; 0 shows only the last policy.
        episodes: How many each shows.
        max_frames: At most this many frames each.
    """

    def __init__(self, every: int = 0, *, episodes: int = 3, max_frames: int = 200) -> None:
        self.episodes = episodes
        self.max_frames = max_frames
        self._clock = Clock("every", every)
        self._works = True
        self._filmed_at = -1

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Film when it is time."""
        if self._clock.is_due(agent):
            self._film(agent)

    def finish(self, agent: PPO) -> None:
        """Film the policy that training ended with."""
        self._film(agent)

    def _film(self, agent: PPO) -> None:
        """Film, or say once why that cannot be done, for training is worth more than pictures."""
        if not self._works or not agent.monitor.enabled or self._filmed_at == agent.steps:
            return
        self._filmed_at = agent.steps
        try:
            frames, fps = _play(agent, episodes=self.episodes, max_frames=self.max_frames)
        except Exception as error:  # whatever somebody's rendering raises
            self._works = False
            logger.warning("no film of the policy: %s", error)
            return
        agent.monitor.video("policy/film", frames, agent.steps, fps=fps)


def _play(agent: PPO, *, episodes: int, max_frames: int) -> tuple[list[Any], float]:
    """Play in a new environment of the kind trained on; return frames and frames per second.

    Raises:
        ValueError: Training had environment objects, of which no new ones can be made.
    """
    made = agent.env_description
    if made is None:
        raise ValueError("the environment was given as objects; an id can be made again")
    envs = make_visible(made["id"], made["kwargs"], policy=agent.policy, device=agent.device)
    try:
        frames, _ = record(agent.policy, envs, episodes=episodes, max_frames=max_frames)
        return list(frames), float(envs.env.metadata.get("render_fps", 15))
    finally:
        envs.close()
