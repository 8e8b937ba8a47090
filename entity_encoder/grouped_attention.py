"""Attention within runs of equally large, small sets: one node in the graph, closed-form gradients.

A fused kernel spends more on starting than on computing when a set has a handful of entities. Here
all sets of one size go through two batched matrix products, the smallest through element-wise
products, and every result is written straight to its rows: no cutting, joining or graph node per
run. Values depend on a set alone, not on its neighbours, to the last bit on a CPU in fp32.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["SMALL_SET", "grouped_attention"]

#: Largest set that is attended here; beyond, the fused kernel wins by not storing the weights.
SMALL_SET = 48
# Up to this size products are written out: a batch of 4 x 4 matrices costs more to start.
TINY_SET = 4


def grouped_attention(qkv: Tensor, groups: list[tuple[int, int]], n_heads: int) -> Tensor:
    """Let the entities of each set attend to each other.

    Args:
        qkv: (R, 3 * H * d): the rows of the runs one after the other, then any tail.
        groups: `(sets, size)` of each run, sizes at most `SMALL_SET`.
        n_heads: H.

    Returns:
        (R, H * d), zeros in the tail. Gradients can be taken once.
    """
    out: Tensor = _GroupedAttention.apply(qkv, groups, n_heads)
    return out


class _GroupedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: list[tuple[int, int]], n_heads: int) -> Tensor:
        width = qkv.shape[1] // 3
        out = qkv.new_empty(qkv.shape[0], width)
        kept: list[list[Tensor]] = []
        start = 0
        for count, size in groups:
            stop = start + count * size
            # [sets, size, q k v, heads, head_dim]
            block = qkv[start:stop].view(count, size, 3, n_heads, -1)
            place = out[start:stop].view(count, size, n_heads, -1)
            if size == 1:  # a softmax over one key is 1
                place.copy_(block[:, :, 2])
            else:
                attend = _tiny_forward if size <= TINY_SET else _small_forward
                saved = attend(block, place)
                if ctx.needs_input_grad[0]:
                    kept.append(saved)
            start = stop
        out[start:] = 0
        ctx.save_for_backward(*itertools.chain.from_iterable(kept))
        ctx.groups, ctx.n_heads = groups, n_heads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        width = grad.shape[1]
        result = grad.new_empty(grad.shape[0], 3 * width)
        kept = iter(ctx.saved_tensors)
        start = 0
        for count, size in ctx.groups:
            stop = start + count * size
            out = result[start:stop].view(count, size, 3, ctx.n_heads, -1)
            incoming = grad[start:stop].reshape(count, size, ctx.n_heads, -1)
            if size == 1:
                out[:, :, :2] = 0
                out[:, :, 2] = incoming
            elif size <= TINY_SET:
                _tiny_backward(incoming, out, *itertools.islice(kept, 2))
            else:
                _small_backward(incoming, out, *itertools.islice(kept, 3))
            start = stop
        result[start:] = 0
        return result, None, None


def _small_forward(block: Tensor, place: Tensor) -> list[Tensor]:
    """Attend by batched matrix products.

    Returns:
        Queries and values (2, S * H, n, d), keys (S * H, P, d), weights (S * H, n, P). P >= n:
        keys beyond n are zeros with weight 0.
    """
    count, size, _, n_heads, head_dim = block.shape
    batch, padded = count * n_heads, max(size, _shortest_row(block))
    heads = block.permute(2, 0, 3, 1, 4)  # [q k v, sets, heads, entities, head_dim]
    queries_values = heads[::2].reshape(2, batch, size, head_dim)
    keys = block.new_empty(count, n_heads, padded, head_dim)
    keys[:, :, :size] = heads[1]
    keys[:, :, size:] = 0
    keys = keys.view(batch, padded, head_dim)
    closed = keys.new_zeros(1, 1, padded)
    closed[..., size:] = -torch.inf
    scale, masked = head_dim**-0.5, int(padded > size)
    scores = torch.baddbmm(
        closed, queries_values[0], keys.transpose(1, 2), beta=masked, alpha=scale
    )
    weights = scores.softmax(-1)
    read = torch.bmm(weights[..., :size], queries_values[1])
    place.copy_(read.view(count, n_heads, size, head_dim).transpose(1, 2))
    return [queries_values, keys, weights]


def _small_backward(
    grad: Tensor, out: Tensor, queries_values: Tensor, keys: Tensor, weights: Tensor
) -> None:
    """Write the gradient of a run's queries, keys and values to `out`, (S, n, 3, H, d)."""
    count, size, n_heads, head_dim = grad.shape
    queries, values = queries_values.unbind(0)
    incoming = grad.transpose(1, 2).reshape(count * n_heads, size, head_dim)
    weights = weights[..., :size]
    grad_scores = _softmax_backward(torch.bmm(incoming, values.transpose(1, 2)), weights, -1)
    grads = incoming.new_empty(3, *incoming.shape)
    scale = {"beta": 0, "alpha": head_dim**-0.5}
    torch.baddbmm(grads[0], grad_scores, keys[:, :size], out=grads[0], **scale)
    torch.baddbmm(grads[1], grad_scores.transpose(1, 2), queries, out=grads[1], **scale)
    torch.bmm(weights.transpose(1, 2), incoming, out=grads[2])
    out.copy_(grads.view(3, count, n_heads, size, head_dim).permute(1, 3, 0, 2, 4))


def _shortest_row(x: Tensor) -> int:
    """Return how long a row must be for a fast softmax: one vector register of a CPU.

    Shorter rows are exponentiated number by number, at up to ten times the cost.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return 1
    return 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


def _softmax_backward(grad: Tensor, weights: Tensor, dim: int) -> Tensor:
    # ds_i = w_i (g_i - sum_j w_j g_j)
    weighted = grad * weights
    return weighted.sub_(weights * weighted.sum(dim, keepdim=True))


def _tiny_forward(block: Tensor, place: Tensor) -> list[Tensor]:
    """Attend by element-wise products; return the block and weights (S, n, n, H)."""
    q, k, v = block.unbind(2)  # (S, n, H, d)
    scores = (q[:, :, None] * k[:, None]).sum(-1)  # [sets, query, key, heads]
    weights = (scores * block.shape[-1] ** -0.5).softmax(2)
    torch.sum(weights[..., None] * v[:, None], 2, out=place)
    return [block, weights]


def _tiny_backward(grad: Tensor, out: Tensor, block: Tensor, weights: Tensor) -> None:
    q, k, v = block.unbind(2)
    grad_weights = (grad[:, :, None] * v[:, None]).sum(-1)  # [sets, query, key, heads]
    grad_scores = _softmax_backward(grad_weights, weights, 2)[..., None]
    grad_scores = grad_scores * block.shape[-1] ** -0.5
    out[:, :, 0] = (grad_scores * k[:, None]).sum(2)
    out[:, :, 1] = (grad_scores * q[:, :, None]).sum(1)
    out[:, :, 2] = (weights[..., None] * grad[:, :, None]).sum(1)
