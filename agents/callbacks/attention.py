"""Show what the policy looks at."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from entity_encoder.agents.attention import Look, draw_matrix, draw_sheet, look_at, visible_scene
from entity_encoder.agents.callbacks.clock import Clock
from entity_encoder.agents.evaluate import EVALUATION_SEED
from entity_encoder.agents.recording import make_visible

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["AttentionMaps"]

logger = logging.getLogger(__name__)


class AttentionMaps:
    """Show attention in TensorBoard's images tab: as matrices, and drawn over the frame.

    The moment is the first observation of one and the same episode each time, so that pictures
    from along the training can be compared. `attention/matrix` has one matrix for each layer and
    head; `attention/frame` one frame each, with the value and the action probabilities beside it.
    An environment that cannot be made again, or draws nothing, gets the matrices alone, of an
    observation that training goes on from.

    Args:
        every: Environment steps between two times; 0 shows only the last policy.
    """

    def __init__(self, every: int = 0) -> None:
        self._clock = Clock("every", every)
        self._works = True
        self._draws = True
        self._shown_at = -1

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Show when it is time."""
        if self._clock.is_due(agent):
            self._show(agent)

    def finish(self, agent: PPO) -> None:
        """Show the policy that training ended with."""
        self._show(agent)

    def _show(self, agent: PPO) -> None:
        """Draw, or say once why that cannot be done, for training is worth more than pictures."""
        if not self._works or not agent.monitor.enabled or self._shown_at == agent.steps:
            return
        self._shown_at = agent.steps
        try:
            look, sheet = self._scene(agent) if self._draws else (None, None)
            look = look or look_at(agent.policy, agent.envs.observation, active=~agent.envs.ended)
        except ValueError as error:  # the policy's core has no attention
            self._works = False
            logger.warning("no attention maps: %s", error)
            return
        agent.monitor.image("attention/matrix", draw_matrix(look), agent.steps)
        if sheet is not None:
            agent.monitor.image("attention/frame", sheet, agent.steps)

    def _scene(self, agent: PPO) -> tuple[Look | None, Any]:
        """Look at the first observation of an episode that can be seen."""
        made = agent.env_description
        try:
            if made is None:
                raise ValueError("the environment was given as objects; an id can be made again")
            envs = make_visible(
                made["id"], made["kwargs"], policy=agent.policy, device=agent.device
            )
            try:
                envs.reset(seed=EVALUATION_SEED)
                frame, places = visible_scene(envs)
            finally:
                envs.close()
        except Exception as error:  # whatever somebody's rendering raises
            self._draws = False
            logger.warning("attention without frames: %s", error)
            return None, None
        names = getattr(envs.env.unwrapped, "action_names", ())
        look = look_at(agent.policy, envs.observation, active=~envs.ended, action_names=names)
        return look, draw_sheet(look, frame, places)
