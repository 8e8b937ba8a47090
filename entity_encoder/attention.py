"""Masked attention over sets: one function per strategy, one place that chooses.

Every strategy computes softmax(q k^T / sqrt(head_dim)) v over the present entities of each set and
shares all parameters with the others; see `explain_strategy` for which one is taken where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from entity_encoder.biased_attention import biased_attention
from entity_encoder.grouped_attention import SMALL_SET, grouped_attention
from entity_encoder.layout import DenseLayout, Layout, PackedLayout
from entity_encoder.pinning import pinned_sdpa

__all__ = [
    "STRATEGIES",
    "attention_maps",
    "cross_attention",
    "explain_strategy",
    "row_attention",
    "self_attention",
]

STRATEGIES = ("auto", "groups", "fast", "padded", "varlen", "dense")

# Up to this many keys two matrix products and a softmax beat the fused kernel on a CPU.
FAST_LIMIT = 64


def explain_strategy(
    requested: str, *, device: torch.device, dtype: torch.dtype, capturing: bool
) -> tuple[str, str]:
    """Choose how attention is computed.

    Args:
        requested: One of `STRATEGIES`.
        device: Where the batch is.
        dtype: Type the layers compute in (autocast included).
        capturing: Whether the call is being exported, compiled or captured in a CUDA graph.

    Returns:
        The strategy and the reason in words.
    """
    if requested != "auto":
        if requested == "varlen" and (device.type != "cuda" or dtype == torch.float32):
            raise ValueError(
                "attention='varlen' must run on a CUDA device in bfloat16 or float16, "
                f"got {dtype} on {device.type}; use attention='auto'"
            )
        return requested, f"attention={requested!r} was asked for"
    if capturing:
        return "dense", "export, compilation and CUDA graphs need static shapes"
    if device.type == "cpu":
        return "groups", (
            "on a CPU equal-sized sets are attended together without a mask: nothing is spent on "
            "padding, and in fp32 a set's result is bitwise the same in any batch"
        )
    if device.type == "cuda" and dtype != torch.float32:
        return "varlen", "in half precision CUDA has a kernel for sets of different lengths"
    return (
        "padded",
        "in fp32 accelerators have no kernel for ragged sets: attention alone is padded",
    )


def _heads(x: Tensor, n_heads: int) -> Tensor:
    """(S, n, H * d) -> (S, H, n, d)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def _join_heads(x: Tensor) -> Tensor:
    """(S, H, n, d) -> (S, n, H * d)."""
    x = x.transpose(1, 2)
    if torch.compiler.is_compiling():
        # Whether this is a view depends on the kernel: exporters may take another one later.
        x = x.clone(memory_format=torch.contiguous_format)
    return x.flatten(2)


def _softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Two matrix products and a softmax, (S, H, n, d) each."""
    scores = torch.matmul(q * (1.0 / math.sqrt(q.shape[-1])), k.transpose(-2, -1))
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return torch.matmul(F.dropout(weights, dropout) if dropout else weights, v)


def _attend_block(
    q: Tensor, k: Tensor, v: Tensor, strategy: str, bias: Tensor | None, dropout: float
) -> Tensor:
    """Full attention within sets of one size, (S, H, n, d) each."""
    if strategy == "fast" and k.shape[2] <= FAST_LIMIT:
        return _softmax_attention(q, k, v, bias, dropout)
    if bias is not None and not dropout and q.dtype == bias.dtype:
        return biased_attention(q, k, v, bias)
    return pinned_sdpa(q, k, v, bias, dropout)


def self_attention(
    qkv: Tensor,
    layout: Layout,
    n_heads: int,
    *,
    bias: Sequence[Tensor] | Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Let the entities of each set attend to each other.

    Args:
        qkv: (R, 3 * H * d) for a packed layout, (B, N, 3 * H * d) for a dense one.
        layout: Which rows form a set.
        n_heads: H.
        bias: Added to the scores: one (S, H, n, n) tensor per run of equal sets for a packed
            layout, one (B, H, N, N) for a dense one.
        dropout: Probability of dropping an attention weight (training only).

    Returns:
        (R, H * d) or (B, N, H * d). Absent rows of a dense layout hold finite leftovers; a set
        that is empty altogether likewise.
    """
    if isinstance(layout, DenseLayout):
        return _dense_self(qkv, layout, n_heads, bias, dropout)
    if layout.strategy == "varlen":
        return _varlen_self(qkv, layout, n_heads)
    if layout.strategy == "padded":
        return _padded_self(qkv, layout, n_heads, bias, dropout)
    plain = bias is None and not dropout and qkv.dtype in (torch.float32, torch.float64)
    if plain and layout.largest <= SMALL_SET:
        return grouped_attention(qkv, layout.groups, n_heads)
    width = qkv.shape[-1] // 3
    small = layout.small_sets(SMALL_SET) if plain else 0
    pieces = layout.split(qkv)  # (S, n, 3 * H * d) each
    blocks = []
    if small:
        rows = sum(count * size for count, size in layout.groups[:small])
        blocks.append(grouped_attention(qkv[:rows], layout.groups[:small], n_heads))
    for i, block in enumerate(pieces[small:], start=small):
        count, size, _ = block.shape
        if size == 1 and not dropout:  # a softmax over one key is 1
            blocks.append(block[:, 0, 2 * width :])
            continue
        q, k, v = block.view(count, size, 3, n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        out = _attend_block(q, k, v, layout.strategy, None if bias is None else bias[i], dropout)
        blocks.append(out.transpose(1, 2).reshape(count * size, width))
    return layout.join(blocks, like=qkv[:, :width])


def _dense_self(
    qkv: Tensor, layout: DenseLayout, n_heads: int, bias: object, dropout: float
) -> Tensor:
    q, k, v = (_heads(part, n_heads) for part in qkv.chunk(3, dim=-1))
    keep = layout.key_mask[:, None, None, :]  # (B, 1, 1, N)
    if isinstance(bias, Tensor):
        keep = torch.where(keep, bias, torch.finfo(bias.dtype).min)
    return _join_heads(pinned_sdpa(q, k, v, keep, dropout))


def _padded_self(
    qkv: Tensor, layout: PackedLayout, n_heads: int, bias: object, dropout: float
) -> Tensor:
    index, mask = layout.padded_index(), layout.padded_mask()
    real = qkv[: index.shape[0]]
    slots = qkv.new_zeros(mask.numel(), qkv.shape[-1]).index_copy_(0, index, real)
    q, k, v = (_heads(p, n_heads) for p in slots.unflatten(0, mask.shape).chunk(3, dim=-1))
    keep = mask[:, None, None, :]  # (S, 1, 1, n)
    if isinstance(bias, list) and bias:
        keep = _padded_bias(bias, keep)
    out = _join_heads(pinned_sdpa(q, k, v, keep, dropout))  # (S, n, H * d)
    return layout.pad(out.flatten(0, 1).index_select(0, index))


def _padded_bias(bias: list[Tensor], keep: Tensor) -> Tensor:
    """Widen the biases of smaller sets and close the slots they lack: (S, H, n, n)."""
    largest = keep.shape[-1]
    wide = [F.pad(b, (0, largest - b.shape[-1], 0, largest - b.shape[-1])) for b in bias]
    joined = torch.cat(wide)
    return torch.where(keep, joined, torch.finfo(joined.dtype).min)


def _varlen_self(qkv: Tensor, layout: PackedLayout, n_heads: int) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    real = qkv[: layout.rows.shape[0]].unflatten(-1, (3, n_heads, -1))  # (T, 3, H, d)
    q, k, v = real.unbind(1)
    bounds = layout.cumulative()
    out = varlen_attn(q, k, v, bounds, bounds, layout.largest, layout.largest)
    assert isinstance(out, Tensor)  # a tuple only where the normaliser was asked for
    return layout.pad(out.flatten(1))


def cross_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, n_heads: int, *, dropout: float = 0.0
) -> Tensor:
    """Let M queries per set read the entities of that set.

    Args:
        q: (S, M, H * d), one block of queries per set of the layout.
        k: Keys of the entities, (R, H * d) or (B, N, H * d).
        v: Values of the entities, like `k`.
        layout: Which rows form a set.
        n_heads: H.
        dropout: Probability of dropping an attention weight.

    Returns:
        (S, M, H * d).
    """
    if isinstance(layout, DenseLayout):
        if not k.shape[1]:
            return torch.zeros_like(q)
        keep = layout.key_mask[:, None, None, :]
        q, k, v = (_heads(part, n_heads) for part in (q, k, v))
        return _join_heads(pinned_sdpa(q, k, v, keep, dropout))
    blocks = []
    queries = q.split(layout.set_splits)
    for qi, ki, vi in zip(queries, layout.split(k), layout.split(v), strict=True):
        qi, ki, vi = (_heads(part, n_heads) for part in (qi, ki, vi))
        strategy = "fast" if layout.strategy == "fast" else "groups"
        blocks.append(_join_heads(_attend_block(qi, ki, vi, strategy, None, dropout)))
    return torch.cat(blocks) if blocks else torch.zeros_like(q)


def row_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, n_heads: int, *, dropout: float = 0.0
) -> Tensor:
    """Let the entities of each set read M vectors of that set.

    Args:
        q: Queries of the entities, (R, H * d) or (B, N, H * d).
        k: (S, M, H * d), one block per set of the layout.
        v: (S, M, H * d).
        layout: Which rows form a set.
        n_heads: H.
        dropout: Probability of dropping an attention weight.

    Returns:
        Like `q`.
    """
    if isinstance(layout, DenseLayout):
        q, k, v = (_heads(part, n_heads) for part in (q, k, v))
        return _join_heads(pinned_sdpa(q, k, v, None, dropout))
    blocks = []
    keys, values = k.split(layout.set_splits), v.split(layout.set_splits)
    for qi, ki, vi in zip(layout.split(q), keys, values, strict=True):
        qi, ki, vi = (_heads(part, n_heads) for part in (qi, ki, vi))
        strategy = "fast" if layout.strategy == "fast" else "groups"
        blocks.append(_join_heads(_attend_block(qi, ki, vi, strategy, None, dropout)).flatten(0, 1))
    return layout.join(blocks, like=q)


def attention_maps(
    qkv: Tensor, layout: Layout, n_heads: int, *, bias: Sequence[Tensor] | Tensor | None = None
) -> Tensor:
    """Return who attends to whom, (B, H, N, N), rows of present entities summing to 1.

    Computed beside the attention, which stays bit-identical. Rows and columns of absent
    entities are exactly 0.
    """
    if isinstance(layout, DenseLayout):
        q, k, _ = (_heads(part, n_heads) for part in qkv.chunk(3, dim=-1))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        if isinstance(bias, Tensor):
            scores = scores + bias
        scores = scores.masked_fill(~layout.key_mask[:, None, None, :], -math.inf)
        pairs = layout.mask[:, None, :, None] & layout.mask[:, None, None, :]
        return torch.where(pairs, scores.softmax(-1), 0.0)
    batch, slots = layout.shape
    maps = qkv.new_zeros(batch, slots, slots, n_heads)
    first_row, first_set = 0, 0
    for i, (block, (count, size)) in enumerate(zip(layout.split(qkv), layout.groups, strict=True)):
        q, k, _ = block.view(count, size, 3, n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])  # (S, H, n, n)
        weights = (scores if bias is None else scores + bias[i]).softmax(-1)
        place = layout.rows[first_row : first_row + count * size].view(count, size) % slots
        sets = layout.sets[first_set : first_set + count]
        maps[sets[:, None, None], place[:, :, None], place[:, None, :]] = weights.permute(
            0, 2, 3, 1
        )
        first_row, first_set = first_row + count * size, first_set + count
    return maps.permute(0, 3, 1, 2)
