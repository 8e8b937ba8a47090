"""Show how weights, gradients and activations are distributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from entity_encoder.agents.callbacks.clock import Clock

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Histograms"]


class Histograms:
    """Log how weights, gradients and activations are distributed.

    Args:
        every: Environment steps between two times.
    """

    def __init__(self, every: int) -> None:
        self._clock = Clock("every", every)

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
