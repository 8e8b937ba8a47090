"""Attention with a learned bias that computes the same bits with and without gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from entity_encoder.pinning import pinned_sdpa

__all__ = ["biased_attention"]


class _BiasedAttention(torch.autograd.Function):
    """The fused kernel forward, the closed form backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v, bias)
        return pinned_sdpa(q, k, v, bias.detach())  # what matters is whether it needs gradients

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, bias = ctx.saved_tensors
        (grad,) = grads
        scale = q.shape[-1] ** -0.5
        weights = (torch.matmul(q * scale, k.transpose(-2, -1)) + bias).softmax(-1)
        grad_v = torch.matmul(weights.transpose(-2, -1), grad)
        grad_weights = torch.matmul(grad, v.transpose(-2, -1))
        # d softmax: w * (g - sum_j w_j g_j)
        mean = (weights * grad_weights).sum(-1, keepdim=True)
        grad_scores = weights * (grad_weights - mean)
        grad_q = torch.matmul(grad_scores, k) * scale
        grad_k = torch.matmul(grad_scores.transpose(-2, -1), q) * scale
        return grad_q, grad_k, grad_v, grad_scores


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attend with a bias added to the scores.

    PyTorch takes its fused kernel for a bias only where the bias needs no gradient, so a rollout
    and the update that follows would differ in the last bits.

    Args:
        q: (S, H, n, d).
        k: (S, H, n, d).
        v: (S, H, n, d).
        bias: (S, H, n, n).

    Returns:
        (S, H, n, d).
    """
    out: Tensor = _BiasedAttention.apply(q, k, v, bias)
    return out
