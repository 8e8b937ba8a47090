"""What can be watched while training goes on: evaluation, a film of the policy, histograms.

They draw their random numbers from generators of their own and change no parameter: with them or
without them, training gives the same bits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from entity_encoder.agents.evaluate import EvaluationResult
from entity_encoder.agents.recording import make_visible, record

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Evaluation", "Film", "Histograms", "evaluation_metrics", "film"]

logger = logging.getLogger(__name__)


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
        self._clock = _Clock("every", every)
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
        self._clock = _Clock("every", every)
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
            frames, fps = film(agent, episodes=self.episodes, max_frames=self.max_frames)
        except Exception as error:  # whatever somebody's rendering raises
            self._works = False
            logger.warning("no film of the policy: %s", error)
            return
        agent.monitor.video("policy/film", frames, agent.steps, fps=fps)


class Histograms:
    """Log how weights, gradients and activations are distributed.

    Args:
        every: Environment steps between two times.
    """

    def __init__(self, every: int) -> None:
        self._clock = _Clock("every", every)

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Log when it is time."""
        if not self._clock.is_due(agent) or not agent.monitor.enabled:
            return
        log, step = agent.monitor.histogram, agent.steps
        for name, parameter in agent.policy.named_parameters():
            log(f"weights/{name}", parameter, step)
            if parameter.grad is not None:  # of the last minibatch
                log(f"gradients/{name}", parameter.grad, step)
        for name, output in _activations(agent.policy, agent.envs.observation).items():
            log(f"activations/{name}", output, step)


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


def film(agent: PPO, *, episodes: int, max_frames: int) -> tuple[list[Any], float]:
    """Play in a new environment of the kind trained on; return frames and frames per second.

    Raises:
        ValueError: Training had environment objects, of which no new ones can be made.
    """
    made = agent.env_description
    if made is None:
        raise ValueError("the environment was given as objects; an id can be made again")
    envs = make_visible(made["id"], made["kwargs"], device=agent.device)
    try:
        frames, _ = record(agent.policy, envs, episodes=episodes, max_frames=max_frames)
        return list(frames), float(envs.env.metadata.get("render_fps", 15))
    finally:
        envs.close()


class _Clock:
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


@torch.no_grad()
def _activations(policy: nn.Module, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what every layer with weights gives for an observation."""
    found: dict[str, Tensor] = {}
    hooks = []
    for name, module in policy.named_modules():
        if next(module.parameters(recurse=False), None) is not None:

            def keep(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                if isinstance(output, Tensor):
                    found[name] = output

            hooks.append(module.register_forward_hook(keep))
    try:
        first = next(iter(observation.values()))
        policy(observation, active=first.new_zeros(len(first), dtype=torch.bool))
    finally:
        for hook in hooks:
            hook.remove()
    return found
