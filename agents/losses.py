"""The terms that PPO minimises, per sample (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["approx_kl", "clip_fraction", "clipped_surrogate", "value_loss"]


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """Return the policy loss of each sample, (n,).

    loss = max(-A rho, -A clip(rho, 1 - eps, 1 + eps)) with rho = exp(log_ratio). Clipping takes
    away the reward for going further, never the penalty: with A < 0 and rho > 1 + eps the loss
    stays -A rho.

    Args:
        log_ratio: (n,), log pi(a|s) - log pi_old(a|s).
        advantages: (n,).
        clip_range: eps.
    """
    ratio = log_ratio.exp()
    return torch.maximum(
        -advantages * ratio, -advantages * ratio.clamp(1 - clip_range, 1 + clip_range)
    )


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, clip_range: float | None
) -> Tensor:
    """Return half the squared error of each value, (n,), pessimistically clipped.

    loss = 1/2 max((V - R)^2, (V_old + clip(V - V_old, -eps, eps) - R)^2)

    Args:
        values: (n,), of the value function that learns.
        old_values: (n,), of the one that acted.
        returns: (n,), the targets.
        clip_range: eps, in the unit of values; None leaves the error alone.
    """
    loss = (values - returns).square()
    if clip_range is not None:
        change = torch.clamp(values - old_values, -clip_range, clip_range)
        loss = torch.maximum(loss, (old_values + change - returns).square())
    return 0.5 * loss


def approx_kl(log_ratio: Tensor) -> Tensor:
    """Return the k3 estimate of KL(pi_old || pi) from each sample, (n,), never negative.

    k3 = (rho - 1) - log rho, from http://joschu.net/blog/kl-approx.html: unbiased like -log rho,
    with less variance.
    """
    return torch.expm1(log_ratio) - log_ratio


def clip_fraction(log_ratio: Tensor, clip_range: float) -> Tensor:
    """Return 1.0 for each sample whose ratio lies outside the clip range, else 0.0, (n,)."""
    return (torch.expm1(log_ratio).abs() > clip_range).to(log_ratio.dtype)
