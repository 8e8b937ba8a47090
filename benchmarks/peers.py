"""The encoders people use today, written from their arithmetic; all take True = present."""

from __future__ import annotations

import importlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["DingTransformer", "SdpaPadded", "TorchEncoder", "make_ding"]


class _DingLayer(nn.Module):
    """Post-norm layer with explicit softmax attention and an activation after every MLP layer."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, slots, width = x.shape
        heads = (batch, slots, self.n_heads, width // self.n_heads)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = torch.matmul(q, k.transpose(-2, -1)) / heads[-1] ** 0.5
        weights = scores.masked_fill(~mask, -1e9).softmax(-1)
        read = torch.matmul(weights, v).transpose(1, 2).reshape(batch, slots, width)
        x = self.norm1(x + self.out(read))
        return self.norm2(x + torch.relu(self.outer(torch.relu(self.inner(x)))))


class DingTransformer(nn.Module):
    """DI-engine's arithmetic on padded sets, the mask repeated to (B, 1, N, N)."""

    def __init__(self, features: int, d_model: int, n_heads: int, d_ff: int, n_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(features, d_model)
        self.layers = nn.ModuleList(_DingLayer(d_model, n_heads, d_ff) for _ in range(n_layers))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, N, C), (B, N) -> (B, N, D)."""
        wide = mask.unsqueeze(1).repeat(1, mask.shape[1], 1).unsqueeze(1)
        x = torch.relu(self.embedding(x))
        for layer in self.layers:
            x = layer(x, wide)
        return x


def make_ding(features: int, d_model: int, n_heads: int, d_ff: int, n_layers: int) -> nn.Module:
    """Return the real DI-engine transformer where it is installed, its arithmetic otherwise."""
    try:
        module = importlib.import_module("ding.torch_utils.network.transformer")
    except ImportError:
        return DingTransformer(features, d_model, n_heads, d_ff, n_layers)
    real: nn.Module = module.Transformer(
        features, d_model // n_heads, d_ff, d_model, n_heads, 2, n_layers
    )
    return real


class TorchEncoder(nn.Module):
    """`nn.TransformerEncoder` with a key padding mask; its nested fast path where it takes one."""

    def __init__(self, features: int, d_model: int, n_heads: int, d_ff: int, n_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(features, d_model)
        layer = nn.TransformerEncoderLayer(d_model, n_heads, d_ff, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, n_layers)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, N, C), (B, N) -> (B, N, D)."""
        out: Tensor = self.encoder(self.embedding(x), src_key_padding_mask=~mask)
        return out


class _SdpaLayer(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.n_heads, -1)).unbind(-3)
        q, k, v = (part.transpose(1, 2) for part in parts)
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.outer(torch.relu(self.inner(self.norm2(x))))


class SdpaPadded(nn.Module):
    """Our own arithmetic on padded sets: pre-norm blocks on fused attention with a bool mask."""

    def __init__(self, features: int, d_model: int, n_heads: int, d_ff: int, n_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(features, d_model)
        self.layers = nn.ModuleList(_SdpaLayer(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, N, C), (B, N) -> (B, N, D)."""
        keys = mask[:, None, None, :]
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x, keys)
        return self.norm(x)
