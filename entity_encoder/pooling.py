"""From a set of vectors to one vector, padding and order invisible."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entity_encoder.attention import cross_attention
from entity_encoder.errors import choose, require_at_least
from entity_encoder.layout import Layout, dense_layout
from entity_encoder.linear import RowLinear
from entity_encoder.observation import as_mask

__all__ = ["POOLINGS", "SetPooling", "pool"]

POOLINGS = ("mean", "max", "sum", "attention", "class", "ego")


def pool(x: Tensor, mask: Tensor, how: str = "mean") -> Tensor:
    """Reduce the present entities of each set; an empty set gives zeros.

    Args:
        x: (..., N, D); absent rows may hold anything.
        mask: (..., N), True or 1 = present.
        how: "mean", "max" or "sum".

    Returns:
        (..., D).

    Raises:
        ValueError: For another way of pooling, or a mask that does not fit.
    """
    choose("how", how, POOLINGS[:3])
    if mask.shape != x.shape[:-1]:
        raise ValueError(f"mask must have shape {tuple(x.shape[:-1])}, got {tuple(mask.shape)}")
    keep = as_mask(mask)
    layout = dense_layout(keep.flatten(0, -2) if keep.dim() > 1 else keep[None])
    out = layout.reduce(x.flatten(0, -3) if x.dim() > 2 else x[None], how)  # type: ignore[arg-type]
    return out.reshape(*x.shape[:-2], x.shape[-1])


class SetPooling(nn.Module):
    """Read one vector out of the rows of each set.

    Args:
        how: mean, max, sum; attention: learned queries read the set; class: the row of the
            class token; ego: the ego entity's row, joined by what it asks the others.
        d_model: Width D.
        n_heads: Heads of the attention and ego read-outs.
        n_queries: Learned queries of the attention read-out.
    """

    def __init__(self, how: str, d_model: int, *, n_heads: int, n_queries: int = 1) -> None:
        super().__init__()
        self.how = choose("pooling", how, POOLINGS)
        require_at_least(1, n_queries=n_queries)
        self.n_heads = n_heads
        self.output_dim = d_model
        if how in ("attention", "ego"):
            self.kv = nn.Linear(d_model, 2 * d_model)
        if how == "attention":
            self.queries = nn.Parameter(torch.randn(n_queries, d_model) * d_model**-0.5)
            self.output_dim = n_queries * d_model
        if how == "ego":
            self.query = RowLinear(d_model, d_model, bias=False)
            self.output_dim = 2 * d_model

    def forward(self, x: Tensor, layout: Layout, flags: Tensor | None) -> Tensor:
        """Pool rows.

        Args:
            x: (R, D) or (B, N, D).
            layout: Which rows form a set.
            flags: Which row is the class token or the ego entity, (R,) or (B, N) bool.

        Returns:
            (S, output_dim), one row per set of the layout.
        """
        if self.how in ("mean", "max", "sum"):
            return layout.reduce(x, self.how)  # type: ignore[arg-type]
        if self.how == "attention":
            k, v = self.kv(x).chunk(2, dim=-1)
            q = self.queries.expand(layout.n_sets, -1, -1)
            return cross_attention(q, k, v, layout, self.n_heads).flatten(1)
        assert flags is not None
        chosen = layout.reduce(torch.where(flags[..., None], x, 0.0), "sum")  # at most one row
        if self.how == "class":
            return chosen
        k, v = self.kv(x).chunk(2, dim=-1)
        asked = cross_attention(self.query(chosen)[:, None], k, v, layout, self.n_heads)
        return torch.cat([chosen, asked[:, 0]], dim=1)
