"""Tell when it is time to look at a training again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Clock"]


class Clock:
    """Tell when a number of environment steps has passed, also after a resume."""

    def __init__(self, name: str, every: int) -> None:
        if every < 0:
            raise ValueError(f"{name} must not be negative, got {every}")
        self.every = every
        self._last: int | None = None

    def is_due(self, agent: PPO) -> bool:
        """Return whether a multiple of `every` lies between the last call and now."""
        before = agent.steps - agent.config.rollout_size if self._last is None else self._last
        self._last = agent.steps
        return bool(self.every) and agent.steps // self.every > max(before, 0) // self.every
