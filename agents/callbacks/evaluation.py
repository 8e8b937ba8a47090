"""Evaluate the policy while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from entity_encoder.agents.callbacks.clock import Clock
from entity_encoder.agents.evaluate import EvaluationResult

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Evaluation", "evaluation_metrics"]


class Evaluation:
    """Evaluate now and then, and once when training has ended.

    Args:
        every: Environment steps between two evaluations; 0 leaves only the last.
        episodes: How many each time.

    Attributes:
        result: The latest one, None before the first.
    """

    def __init__(self, every: int = 0, episodes: int = 100) -> None:
        self.episodes = episodes
        self.result: EvaluationResult | None = None
        self._clock = Clock("every", every)
        self._evaluated_at = -1

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Evaluate when it is time."""
        if self._clock.is_due(agent):
            self._evaluate(agent)

    def finish(self, agent: PPO) -> None:
        """Evaluate the policy that training ended with."""
        if self._evaluated_at != agent.steps:
            self._evaluate(agent)

    def _evaluate(self, agent: PPO) -> None:
        if agent.ranks.first:
            self._evaluated_at = agent.steps
            self.result = agent.evaluate(self.episodes)
            agent.monitor.scalars(evaluation_metrics(self.result), agent.steps)


def evaluation_metrics(result: EvaluationResult) -> dict[str, float | None]:
    """Return an evaluation's numbers by their tags; None where there is nothing to tell."""
    return {
        "evaluation/return": result.returns.mean,
        "evaluation/return_low": result.returns.low if result.returns.count > 1 else None,
        "evaluation/return_high": result.returns.high if result.returns.count > 1 else None,
        "evaluation/length": result.lengths.mean,
        "evaluation/score": result.score.mean if result.score else None,
        "evaluation/success": result.success.mean if result.success else None,
    }
