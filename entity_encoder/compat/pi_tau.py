"""The pre-norm encoder block of pi-tau/transformer: its names, arguments and weights.

The original's mask hides query rows instead of keys, so that valid entities attend to padding;
here keys are masked. Its residual is added to the normalised input, which makes a stack of blocks
the same function as post-norm layers; here that arithmetic is a choice, for weights trained on it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entity_encoder.attention import self_attention
from entity_encoder.errors import choose
from entity_encoder.layout import Layout, tokens
from entity_encoder.observation import as_mask
from entity_encoder.pinning import is_capturing
from entity_encoder.transformer import compute_dtype, plan

__all__ = ["EncoderBlock", "MultiHeadAttention"]

CHUNK_ROWS = 4096  # keeps activations inside a CPU's caches


class MultiHeadAttention(nn.Module):
    """Self-attention with bias-free queries, keys and values.

    Args:
        d_model: Width D.
        n_heads: Number of heads.
        dropout: Probability of dropping an attention weight while training.

    Raises:
        ValueError: When D is not divisible by the number of heads.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(
                f"d_model must be divisible by n_heads, got d_model={d_model}, n_heads={n_heads}"
            )
        self.n_heads = n_heads
        self.dropout = dropout
        self.Q = nn.Linear(d_model, d_model, bias=False)
        self.K = nn.Linear(d_model, d_model, bias=False)
        self.V = nn.Linear(d_model, d_model, bias=False)
        self.Wo = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Attend within the sets of a layout: (R, D) or (B, T, D) to the same shape."""
        qkv = F.linear(x, torch.cat([self.Q.weight, self.K.weight, self.V.weight]))
        dropout = self.dropout if self.training else 0.0
        out: Tensor = self.Wo(self_attention(qkv, layout, self.n_heads, dropout=dropout))
        return out


class EncoderBlock(nn.Module):
    """One pre-norm transformer block.

    Put a LayerNorm after the last block of a stack.

    Args:
        d_model: Width D.
        n_heads: Number of heads.
        dim_mlp: Hidden width of the MLP.
        dropout: Probability of dropping while training.
        residual: "input": x + f(norm(x)), true pre-norm. "normalised": norm(x) + f(norm(x)), the
            original's arithmetic, for weights that were trained with it.
        attention: How attention is computed, see `entity_encoder.attention`.

    Raises:
        ValueError: For widths that do not fit and unknown names.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dim_mlp: int,
        dropout: float = 0.0,
        *,
        residual: str = "input",
        attention: str = "auto",
    ) -> None:
        super().__init__()
        self.residual = choose("residual", residual, ("input", "normalised"))
        self.strategy = attention
        self.attn_norm = nn.LayerNorm(d_model)
        self.attn = MultiHeadAttention(d_model, n_heads, dropout)
        self.mlp_norm = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, dim_mlp), nn.ReLU(), nn.Linear(dim_mlp, d_model)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode sets.

        Args:
            x: (B, T, D); absent entities may hold anything.
            mask: (B, T), True or 1 = takes part, of bool, integer or float dtype. None: all do.

        Returns:
            (B, T, D), exactly 0 where the mask is not set.

        Raises:
            ValueError: When shapes do not fit or the mask holds anything but 0 and 1.
        """
        if x.dim() != 3:
            raise ValueError(f"x must have shape (B, T, D), got {tuple(x.shape)}")
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if mask.shape != x.shape[:2]:
            raise ValueError(f"mask must have shape {tuple(x.shape[:2])}, got {tuple(mask.shape)}")
        mask = as_mask(mask, check=mask.device.type == "cpu" and not is_capturing())
        layouts = plan(mask, self.strategy, compute_dtype(x), CHUNK_ROWS)
        return tokens(layouts, [self._rows(layout.pick(x), layout) for layout in layouts])

    def _rows(self, x: Tensor, layout: Layout) -> Tensor:
        normed = self.attn_norm(x)
        x = (normed if self.residual == "normalised" else x) + self.drop(self.attn(normed, layout))
        normed = self.mlp_norm(x)
        return (normed if self.residual == "normalised" else x) + self.drop(self.mlp(normed))
