"""Generalised advantage estimation over rollouts in which episodes end, and its normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gae", "moments", "normalise_advantages"]


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    valid: Tensor | None = None,
) -> Tensor:
    """Estimate advantages (Schulman et al. 2015, https://arxiv.org/abs/1506.02438).

    A termination has no future: its next value is never looked at. A truncation has one that was
    not seen: its next value is that of the true final observation, and the recursion stops there.
    Rows that are not valid only reset an environment; they get 0 and hand nothing on.

    Args:
        rewards: (T, E).
        values: (T, E), V(s_t).
        next_values: (T, E), V of the true successor of s_t: of the final observation where the
            episode ended, never of the observation after the reset.
        terminated: (T, E) bool, the action of step t ended the episode.
        truncated: (T, E) bool, the episode was cut off after step t.
        gamma: Discount per step.
        gae_lambda: 0 = one-step advantage, 1 = the whole return.
        valid: (T, E) bool, False = no action was taken in this row. None: all are valid.

    Returns:
        (T, E) advantages; `advantages + values` are the targets of the value function.
    """
    # delta_t = r_t + gamma V(s_{t+1}) (1 - terminated_t) - V(s_t)
    delta = rewards + gamma * torch.where(terminated, 0.0, next_values) - values
    boundary = terminated | truncated
    if valid is not None:
        delta = torch.where(valid, delta, 0.0)
        boundary = boundary | ~valid
    # A_t = delta_t + gamma lambda (1 - boundary_t) A_{t+1}
    decay = gamma * gae_lambda * (~boundary).to(delta.dtype)
    advantages = torch.empty_like(delta)
    last = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        last = torch.addcmul(delta[t], decay[t], last)
        advantages[t] = last
    return advantages


def moments(x: Tensor, keep: Tensor | None = None) -> Tensor:
    """Return count, sum and sum of squares, (3,) float64: what ranks can add up.

    Args:
        x: (n,).
        keep: (n,) bool, which of them count; None: all.
    """
    x = x.double()
    if keep is None:
        count = x.new_full((), x.numel())
    else:
        x, count = torch.where(keep, x, 0.0), keep.sum().double()
    return torch.stack([count, x.sum(), x.square().sum()])


def normalise_advantages(
    advantages: Tensor, total: Tensor | None = None, *, epsilon: float = 1e-8
) -> Tensor:
    """Shift to mean 0 and scale to standard deviation 1.

    One sample, or samples that are all equal, become 0: nothing says which of them was better.

    Args:
        advantages: (n,).
        total: `moments` of the set to normalise by; default the advantages themselves. Several
            processes pass the sum over all of them, a minibatch in chunks that of the whole.
        epsilon: Added to the standard deviation.
    """
    count, first, second = (moments(advantages) if total is None else total).unbind()
    mean = first / count.clamp(min=1)
    variance = (second / count.clamp(min=1) - mean.square()).clamp(min=0)
    # What remains of the variance of equal numbers is rounding: about 1e-16 of their square.
    noise = 1e-12 * mean.square()
    scale = torch.where(variance > noise, 1 / (variance.sqrt() + epsilon), 0.0)
    return ((advantages - mean) * scale).to(advantages.dtype)
