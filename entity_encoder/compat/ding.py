"""DI-engine's transformer classes: its names, arguments, weights and arithmetic.

Models built on `ding.torch_utils.network.transformer` run here unchanged and load their state
dicts. On valid entities results agree with DI-engine's to rounding. What differs is on purpose:

- padding is never read, so NaN in it reaches nothing, and padded rows come out as zeros;
- a set without entities, no sets at all, half precision and masks of any dtype work;
- every dropout is a module of its own and applied once;
- two models never share an activation; within one model a parametric one (nn.PReLU) is shared,
  since the state dict names one parameter under many keys.
"""

from __future__ import annotations

import copy
import itertools
import math

import torch
from torch import Tensor, nn

from entity_encoder.attention import self_attention
from entity_encoder.layout import Layout, tokens
from entity_encoder.observation import as_mask
from entity_encoder.pinning import is_capturing, pinned_sdpa
from entity_encoder.transformer import compute_dtype, plan

__all__ = ["Attention", "ScaledDotProductAttention", "Transformer", "TransformerLayer"]

CHUNK_ROWS = 4096  # keeps activations of this class's usual widths inside a CPU's caches


class ScaledDotProductAttention(nn.Module):
    """softmax(q k^T / sqrt(d_k)) v.

    Args:
        d_k: Width the scores are scaled by.
        dropout: Probability of dropping an attention weight while training.
    """

    def __init__(self, d_k: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_k = d_k
        self.dropout = nn.Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend.

        Args:
            q: (B, H, N, d).
            k: (B, H, M, d).
            v: (B, H, M, e).
            mask: Broadcastable to (B, H, N, M), True or 1 = the key takes part. A query without
                any key gives zeros.

        Returns:
            (B, H, N, e).
        """
        q = q * math.sqrt(q.shape[-1] / self.d_k)  # the kernel divides by sqrt(d)
        return _attend(q, k, v, mask, _probability(self.dropout, self.training))


class Attention(nn.Module):
    """Multi-head self-attention.

    Args:
        input_dim: Width of the entities that come in.
        head_dim: Width of a head, independent of the other widths.
        output_dim: Width that goes out.
        head_num: Number of heads H.
        dropout: Module whose probability is applied to the attention weights.
    """

    def __init__(
        self, input_dim: int, head_dim: int, output_dim: int, head_num: int, dropout: nn.Module
    ) -> None:
        super().__init__()
        self.head_num = head_num
        self.head_dim = head_dim
        self.dropout = copy.deepcopy(dropout)
        self.attention_pre = nn.Sequential(nn.Linear(input_dim, 3 * head_num * head_dim))
        self.project = nn.Sequential(nn.Linear(head_num * head_dim, output_dim))

    def split(self, x: Tensor, T: bool = False) -> Tensor:
        """Cut (B, N, H * head_dim) into heads (B, H, N, head_dim), transposed with `T`."""
        heads = x.unflatten(2, (self.head_num, self.head_dim))
        return heads.permute(0, 2, 3, 1) if T else heads.transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let the N entities of each set attend to each other.

        Args:
            x: (B, N, input_dim).
            mask: Broadcastable to (B, H, N, N), True or 1 = the row may look at the column. A
                column that no row may look at is an absent entity: it is not read.

        Returns:
            (B, N, output_dim); rows that may look at nothing hold the bias of the projection.
        """
        x = _drop_unseen(x, mask)
        q, k, v = (self.split(part) for part in self.attention_pre(x).chunk(3, dim=-1))
        heads = _attend(q, k, v, mask, _probability(self.dropout, self.training))
        out: Tensor = self.project(heads.transpose(1, 2).flatten(2))
        return out

    def rows(self, x: Tensor, layout: Layout) -> Tensor:
        """Attend within the sets of a layout: (R, input_dim) or (B, N, input_dim) rows."""
        dropout = _probability(self.dropout, self.training)
        qkv = self.attention_pre(x)
        out: Tensor = self.project(self_attention(qkv, layout, self.head_num, dropout=dropout))
        return out


class TransformerLayer(nn.Module):
    """Attention and MLP, each followed by adding the input and layer normalisation.

    Args:
        input_dim: Width of the entities that come in; must equal `output_dim`.
        head_dim: Width of a head.
        hidden_dim: Hidden width of the MLP.
        output_dim: Width that goes out.
        head_num: Number of heads.
        mlp_num: Linear layers of the MLP, each followed by the activation, the last one too.
        dropout: Module that every place of the layer gets its own copy of.
        activation: Activation module; used as it is when it has parameters, else copied.
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int,
        hidden_dim: int,
        output_dim: int,
        head_num: int,
        mlp_num: int,
        dropout: nn.Module,
        activation: nn.Module,
    ) -> None:
        super().__init__()
        self.attention = Attention(input_dim, head_dim, output_dim, head_num, dropout)
        self.layernorm1 = nn.LayerNorm(output_dim)
        self.dropout = copy.deepcopy(dropout)
        widths = [output_dim, *[hidden_dim] * (mlp_num - 1), output_dim]
        parts: list[nn.Module] = []
        for inner, outer in itertools.pairwise(widths):
            parts.append(nn.Sequential(nn.Linear(inner, outer), _own(activation)))
            parts.append(copy.deepcopy(dropout))  # the last one drops the whole branch, once
        self.mlp = nn.Sequential(*parts)
        self.layernorm2 = nn.LayerNorm(output_dim)

    def forward(self, inputs: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
        """Transform one batch.

        Args:
            inputs: x (B, N, input_dim), and a mask broadcastable to (B, H, N, N) or None; see
                `Attention.forward`.

        Returns:
            (B, N, output_dim) with zeros for absent entities, and the mask as it came.
        """
        x, mask = inputs
        x = _drop_unseen(x, mask)
        x = self._add_mlp(self.layernorm1(x + self.dropout(self.attention(x, mask))))
        return _drop_unseen(x, mask), mask

    def rows(self, x: Tensor, layout: Layout) -> Tensor:
        """Transform the rows of a layout: (R, D) or (B, N, D)."""
        x = self.layernorm1(x + self.dropout(self.attention.rows(x, layout)))
        return self._add_mlp(x)

    def _add_mlp(self, x: Tensor) -> Tensor:
        out: Tensor = self.layernorm2(x + self.mlp(x))
        return out


class Transformer(nn.Module):
    """Embedding and layers over the valid entities of each set.

    Args:
        input_dim: Width C of the entities that come in.
        head_dim: Width of a head.
        hidden_dim: Hidden width of the MLPs.
        output_dim: Width D that goes out.
        head_num: Number of heads.
        mlp_num: Linear layers of each MLP.
        layer_num: Number of layers.
        dropout_ratio: Probability of dropping while training.
        activation: Activation module, copied; None: a new nn.ReLU.
        attention: How attention is computed, see `entity_encoder.attention`; "dense" computes on
            padding too.
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int = 128,
        hidden_dim: int = 1024,
        output_dim: int = 256,
        head_num: int = 2,
        mlp_num: int = 2,
        layer_num: int = 3,
        dropout_ratio: float = 0.0,
        activation: nn.Module | None = None,
        *,
        attention: str = "auto",
    ) -> None:
        super().__init__()
        self.strategy = attention
        self.act = nn.ReLU() if activation is None else copy.deepcopy(activation)
        self.embedding = nn.Sequential(nn.Linear(input_dim, output_dim), _own(self.act))
        self.dropout = nn.Dropout(dropout_ratio)
        sizes = (output_dim, head_dim, hidden_dim, output_dim, head_num, mlp_num)
        self.main = nn.Sequential(
            *(TransformerLayer(*sizes, self.dropout, self.act) for _ in range(layer_num))
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode sets.

        Args:
            x: (B, N, C); absent entities may hold anything.
            mask: (B, N), True or 1 = valid, of bool, integer or float dtype. None: all valid.

        Returns:
            (B, N, D), exactly 0 where the mask is not set.

        Raises:
            ValueError: When shapes do not fit or the mask holds anything but 0 and 1.
        """
        if x.dim() != 3:
            raise ValueError(f"x must have shape (B, N, C), got {tuple(x.shape)}")
        layouts = plan(_key_mask(mask, x), self.strategy, compute_dtype(x), CHUNK_ROWS)
        return tokens(layouts, [self._rows(layout.pick(x), layout) for layout in layouts])

    def _rows(self, x: Tensor, layout: Layout) -> Tensor:
        x = self.dropout(self.embedding(x))
        for layer in self.main:
            assert isinstance(layer, TransformerLayer)
            x = layer.rows(x, layout)
        return x


def _own(activation: nn.Module) -> nn.Module:
    """Copy an activation, unless it has parameters, which state dicts tie together."""
    return activation if any(True for _ in activation.parameters()) else copy.deepcopy(activation)


def _probability(dropout: nn.Module, training: bool) -> float:
    return float(getattr(dropout, "p", 0.0)) if training else 0.0


def _look(x: Tensor) -> bool:
    return x.device.type == "cpu" and not is_capturing()


def _key_mask(mask: Tensor | None, x: Tensor) -> Tensor:
    if mask is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if mask.shape != x.shape[:2]:
        raise ValueError(f"mask must have shape {tuple(x.shape[:2])}, got {tuple(mask.shape)}")
    return as_mask(mask, check=_look(mask))


def _drop_unseen(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the entities that nobody may look at, themselves included: (B, N, C)."""
    if mask is None:
        return x
    seen = as_mask(mask, check=_look(mask)).any(dim=-2, keepdim=True)  # (B, H, 1, N)
    return torch.where(seen.any(dim=1).transpose(1, 2), x, 0.0)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Attend with (B, H, N, d) heads; queries without a key give zeros."""
    if mask is None:
        return pinned_sdpa(q, k, v, None, dropout)
    mask = as_mask(mask, check=_look(mask))
    has_key = mask.any(dim=-1, keepdim=True)  # (B, H, N, 1)
    seen = mask.any(dim=-2)[..., None]  # (B, H, M, 1)
    # A weight of 0 times NaN is NaN: what nobody sees must not be in the product.
    k, v = (torch.where(seen, part, 0.0) for part in (k, v))
    return torch.where(has_key, pinned_sdpa(q, k, v, mask | ~has_key, dropout), 0.0)
