"""The optimiser: Adam in one kernel, with a learning rate that captured graphs can read."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

__all__ = ["make_optimiser", "set_learning_rate", "state_tensors"]


def make_optimiser(
    parameters: Iterable[nn.Parameter], *, learning_rate: float, epsilon: float, captured: bool
) -> torch.optim.Optimizer:
    """Return Adam.

    Args:
        parameters: What it improves.
        learning_rate: At the beginning.
        epsilon: Of Adam.
        captured: Whether its steps are part of a CUDA graph; then its state exists from the
            start, because a graph cannot make it.
    """
    parameters = list(parameters)
    rate: float | Tensor = learning_rate
    if captured:
        rate = torch.tensor(learning_rate, device=parameters[0].device)
    optimiser = torch.optim.Adam(
        parameters,
        lr=rate,
        eps=epsilon,
        fused=True,
        capturable=captured and parameters[0].device.type == "cuda",
    )
    if captured:
        for parameter in parameters:
            optimiser.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimiser


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the coming steps, where a graph reads it too."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def state_tensors(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors that a step changes, besides the parameters."""
    return [x for state in optimiser.state.values() for x in state.values()]
