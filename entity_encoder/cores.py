"""Ways in which entities interact, other than full attention; each linear in their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from entity_encoder.attention import cross_attention, row_attention
from entity_encoder.errors import require_at_least
from entity_encoder.layout import DenseLayout, Layout
from entity_encoder.linear import RowLinear
from entity_encoder.pinning import pinned_sdpa

if TYPE_CHECKING:
    from entity_encoder.transformer import Context

__all__ = [
    "CORES",
    "EgoAttention",
    "InducedAttention",
    "PoolMixer",
    "make_mixer",
]

CORES = ("attention", "induced", "latent", "ego", "pool")


class InducedAttention(nn.Module):
    """Attention through M learned points: they read the set, the entities read them.

    The induced set attention block of the Set Transformer (arXiv 1810.00825). With `latent`, the
    points also attend to each other in between, as in the Perceiver (arXiv 2103.03206).

    Args:
        d_model: Width D.
        n_heads: Heads.
        n_points: M.
        latent: Whether the points exchange what they read.
        dropout: Probability of dropping an attention weight while training.
    """

    def __init__(
        self, d_model: int, n_heads: int, n_points: int, *, latent: bool, dropout: float
    ) -> None:
        super().__init__()
        require_at_least(1, n_points=n_points)
        self.n_heads = n_heads
        self.rate = dropout
        self.points = nn.Parameter(torch.randn(n_points, d_model) * d_model**-0.5)
        self.read_query = RowLinear(d_model, d_model)
        self.read_kv = nn.Linear(d_model, 2 * d_model)
        self.norm = nn.LayerNorm(d_model)
        self.exchange = RowLinear(d_model, 3 * d_model) if latent else None
        self.exchange_out = RowLinear(d_model, d_model) if latent else None
        self.query = nn.Linear(d_model, d_model)
        self.kv = RowLinear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, layout: Layout, _context: Context) -> Tensor:
        """Mix (R, D) or (B, N, D) rows."""
        dropout = self.rate if self.training else 0.0
        q = self.read_query(self.points).expand(layout.n_sets, -1, -1)  # (S, M, D)
        k, v = self.read_kv(x).chunk(2, dim=-1)
        points = self.points + cross_attention(q, k, v, layout, self.n_heads, dropout=dropout)
        points = self.norm(points)
        if self.exchange is not None and self.exchange_out is not None:
            parts = self.exchange(points).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
            heads = [part.transpose(1, 2) for part in parts]  # (S, H, M, d)
            mixed = pinned_sdpa(heads[0], heads[1], heads[2], None, dropout)
            points = points + self.exchange_out(mixed.transpose(1, 2).flatten(2))
        k, v = self.kv(points).chunk(2, dim=-1)
        read = row_attention(self.query(x), k, v, layout, self.n_heads, dropout=dropout)
        return self.out(read)


class EgoAttention(nn.Module):
    """The ego entity asks the others; every entity hears the answer.

    Without a present ego entity the query is zero: the answer is the mean of the values.

    Args:
        d_model: Width D.
        n_heads: Heads.
        dropout: Probability of dropping an attention weight while training.
    """

    def __init__(self, d_model: int, n_heads: int, *, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.rate = dropout
        self.query = RowLinear(d_model, d_model, bias=False)
        self.kv = nn.Linear(d_model, 2 * d_model)
        self.out = RowLinear(d_model, d_model)

    def forward(self, x: Tensor, layout: Layout, context: Context) -> Tensor:
        """Mix (R, D) or (B, N, D) rows."""
        if context.ego is None:
            raise ValueError("core='ego' must have an ego group, got none; pass ego='<group>'")
        ego = layout.reduce(torch.where(context.ego[..., None], x, 0.0), "sum")  # (S, D)
        k, v = self.kv(x).chunk(2, dim=-1)
        dropout = self.rate if self.training else 0.0
        q = self.query(ego)[:, None]
        answer = self.out(cross_attention(q, k, v, layout, self.n_heads, dropout=dropout)[:, 0])
        return _to_rows(answer, layout)


class PoolMixer(nn.Module):
    """Every entity hears the mean of its set (Deep Sets, arXiv 1703.06114)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value = nn.Linear(d_model, d_model)
        self.out = RowLinear(d_model, d_model)

    def forward(self, x: Tensor, layout: Layout, _context: Context) -> Tensor:
        """Mix (R, D) or (B, N, D) rows."""
        return _to_rows(self.out(layout.reduce(torch.relu(self.value(x)), "mean")), layout)


def _to_rows(x: Tensor, layout: Layout) -> Tensor:
    """Hand one vector per set of the layout to its rows: (S, D) -> (R, D) or (B, N, D)."""
    if isinstance(layout, DenseLayout):
        return layout.per_row(x)
    parts = x.split(layout.set_splits)
    blocks = [
        part.repeat_interleave(size, dim=0)
        for part, (_, size) in zip(parts, layout.groups, strict=True)
    ]
    return layout.join(blocks, like=x)


def make_mixer(
    core: str, d_model: int, n_heads: int, *, n_points: int, dropout: float
) -> nn.Module:
    """Build the interaction of one layer, for every core but full attention."""
    if core == "ego":
        return EgoAttention(d_model, n_heads, dropout=dropout)
    if core == "pool":
        return PoolMixer(d_model)
    return InducedAttention(d_model, n_heads, n_points, latent=core == "latent", dropout=dropout)
