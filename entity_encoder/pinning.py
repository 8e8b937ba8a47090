"""Scaled dot-product attention with the kernel chosen on purpose."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["is_capturing", "pinned_sdpa"]

# With a mask on Hopper, torch 2.11-2.13 prefers cuDNN: NaN gradients for N % 128 == 64
# (pytorch #196678), fp32 masks misread under autocast (#191612), a second of planning per shape.
_CUDA_BACKENDS = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


def pinned_sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Attend with (S, H, n, d) tensors; `mask` is bool (True = key takes part) or a float bias.

    Zero-sized inputs give zero-sized (or zero) outputs, whatever the kernels do with them.
    """
    if not is_capturing() and (not q.numel() or not k.shape[-2]):
        return q * 0 if v.shape[-1] == q.shape[-1] else q.new_zeros(*q.shape[:-1], v.shape[-1])
    if q.device.type == "cuda":
        with sdpa_kernel(_CUDA_BACKENDS):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    if (mask is None or mask.dtype != torch.bool) and not is_capturing():
        return _steady_sdpa(q, k, v, mask, dropout)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


def _steady_sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    """Attend so that rounding depends on nothing but the set itself.

    The CPU kernel gives every thread a buffer of rows * (keys + 2 + width) floats, and rounding in
    its matrix products depends on the alignment of buffers and heads. So a set would notice its
    place in the batch, and which thread serves it, unless rows and widths are multiples of 4. A
    single product alone would be split among threads by another rule: it gets a twin.
    """
    sets, heads, rows, width = q.shape
    if width % 4:
        q, k, v = (F.pad(part, (0, -width % 4)) for part in (q, k, v))
    few = rows < 32 and (width % 16 or rows != k.shape[2])  # from 32 rows on it works in blocks
    if few and rows % 4 and rows * (k.shape[2] + 2 + q.shape[3]) % 4:
        q = F.pad(q, (0, 0, 0, -rows % 4))
        bias = None if bias is None else F.pad(bias, (0, 0, 0, -rows % 4))
    if sets * heads == 1:
        q, k, v = (part.expand(2, -1, -1, -1) for part in (q, k, v))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, scale=width**-0.5
    )
    return out[:sets, :, :rows, :width]


def is_capturing() -> bool:
    """Whether the current call is being traced, compiled, exported or captured."""
    return bool(
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
    )
