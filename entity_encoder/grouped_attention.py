"""Attention within runs of equally large, small sets: one node in the graph, closed-form gradients.

A fused kernel spends more on starting than on computing when a set has a handful of entities. Here
all sets of one size go through two batched matrix products, the smallest through element-wise
products, and every result is written straight to its rows: no cutting, joining or graph node per
run. Values depend on a set alone, not on its neighbours, to the last bit on a CPU in fp32.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["SMALL_SET", "grouped_attention", "shortest_row"]

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


def shortest_row(dtype: torch.dtype, device: torch.device) -> int:
    """Return how long a row must be for a fast softmax: one vector register of a CPU.

    Shorter rows are exponentiated number by number, at up to ten times the cost.
    """
    if device.type != "cpu" or dtype != torch.float32:
        return 1
    return 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


class _GroupedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: list[tuple[int, int]], n_heads: int) -> Tensor:
        width = qkv.shape[1] // 3
        shortest = shortest_row(qkv.dtype, qkv.device)
        out = qkv.new_empty(qkv.shape[0], width)
        kept: list[list[Tensor]] = []
        cuts = _cuts(groups, qkv.shape[0])
        for (count, size), rows, results in zip(
            groups, qkv.split(cuts), out.split(cuts), strict=False
        ):
            # [sets, size, q k v, heads, head_dim]
            block = rows.view(count, size, 3, n_heads, -1)
            place = results.view(count, size, n_heads, -1)
            if size == 1:  # a softmax over one key is 1
                place.copy_(block[:, :, 2])
            else:
                if size <= TINY_SET:
                    saved = _tiny_forward(block, place)
                else:
                    saved = _small_forward(block, place, max(size, shortest))
                if ctx.needs_input_grad[0]:
                    kept.append(saved)
        out[sum(cuts[: len(groups)]) :] = 0
        ctx.save_for_backward(*itertools.chain.from_iterable(kept))
        ctx.groups, ctx.n_heads = groups, n_heads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        width = grad.shape[1]
        result = grad.new_empty(grad.shape[0], 3 * width)
        kept = iter(ctx.saved_tensors)
        cuts = _cuts(ctx.groups, grad.shape[0])
        for (count, size), results, rows in zip(
            ctx.groups, result.split(cuts), grad.split(cuts), strict=False
        ):
            out = results.view(count, size, 3, ctx.n_heads, -1)
            incoming = rows.reshape(count, size, ctx.n_heads, -1)
            if size == 1:
                out[:, :, :2] = 0
                out[:, :, 2] = incoming
            elif size <= TINY_SET:
                _tiny_backward(incoming, out, *itertools.islice(kept, 2))
            else:
                _small_backward(incoming, out, *itertools.islice(kept, 3))
        result[sum(cuts[: len(ctx.groups)]) :] = 0
        return result, None, None


def _cuts(groups: list[tuple[int, int]], n_rows: int) -> list[int]:
    """Return the rows of each run and those of the tail."""
    used = [count * size for count, size in groups]
    return [*used, n_rows - sum(used)]


def _small_forward(block: Tensor, place: Tensor, padded: int) -> list[Tensor]:
    """Attend by batched matrix products.

    Args:
        block: Queries, keys and values, (S, n, 3, H, d).
        place: Where the results go, (S, n, H, d).
        padded: P >= n, the number of keys; those beyond n are zeros with weight 0.

    Returns:
        Queries and values (2, S * H, n, d), keys (S * H, P, d), weights (S * H, n, P).
    """
    count, size, _, n_heads, head_dim = block.shape
    batch = count * n_heads
    heads = block.permute(2, 0, 3, 1, 4)  # [q k v, sets, heads, entities, head_dim]
    queries_values = heads[::2].reshape(2, batch, size, head_dim)
    queries, values = queries_values.unbind(0)
    keys = F.pad(heads[1], (0, 0, 0, padded - size)) if padded > size else heads[1]
    keys = keys.reshape(batch, padded, head_dim)
    closed = _closed(size, padded, block.dtype, block.device)
    beta, scale = int(padded > size), head_dim**-0.5
    scores = torch.baddbmm(closed, queries, keys.transpose(1, 2), beta=beta, alpha=scale)
    weights = scores.softmax(-1)
    read = torch.bmm(weights[..., :size], values)
    place.copy_(read.view(count, n_heads, size, head_dim).transpose(1, 2))
    return [queries_values, keys, weights]


@functools.lru_cache(maxsize=4 * SMALL_SET)
def _closed(size: int, padded: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Minus infinity for the keys that are added: (1, 1, padded)."""
    closed = torch.zeros(1, 1, padded, dtype=dtype, device=device)
    closed[..., size:] = -torch.inf
    return closed


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
