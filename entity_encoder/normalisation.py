"""Mask-aware running normalisation: statistics of real entities only, changed only on request."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entity_encoder.observation import as_tensor
from entity_encoder.pinning import is_capturing

__all__ = ["RunningNorm"]


class RunningNorm(nn.Module):
    """Normalise features to mean 0 and variance 1 over every real entity seen so far.

    `forward` never changes the statistics, so that rollout and update compute the same function;
    call `update` between learning phases. Statistics are float64 buffers, saved with the weights,
    merged by the parallel form of Welford's algorithm (Chan et al. 1979). Until the first update
    the features pass unchanged.

    Args:
        size: Number of feature columns F.
        clip: Bound on the absolute normalised value; 10 lets outliers through without letting one
            dominate a layer.
        epsilon: Added to the variance; a constant column becomes 0.
    """

    count: Tensor
    mean: Tensor
    square: Tensor

    def __init__(self, size: int, *, clip: float = 10.0, epsilon: float = 1e-8) -> None:
        super().__init__()
        if clip <= 0:
            raise ValueError(f"clip must be positive, got {clip}")
        self.clip = clip
        self.epsilon = epsilon
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(size, dtype=torch.float64))  # sum of squares
        self._prepared: tuple[Any, tuple[Tensor, Tensor, Tensor]] | None = None

    @property
    def var(self) -> Tensor:
        """Population variance of each column, (F,); 1 before the first update."""
        seen = self.square / self.count.clamp(min=1)
        return torch.where(self.count > 0, seen, torch.ones_like(seen))

    @torch.no_grad()
    def update(self, x: Tensor | np.ndarray, mask: Tensor | np.ndarray | None = None) -> None:
        """Take in new entities.

        Args:
            x: (..., F); absent rows may hold anything.
            mask: (...), True or 1 = a real entity; None means all are real.
        """
        x = as_tensor(x, self.mean.device).to(torch.float64)
        if mask is None:
            keep = torch.ones(x.shape[:-1], dtype=torch.bool, device=x.device)
        else:
            keep = as_tensor(mask, x.device) == 1
        rows = x.reshape(keep.numel(), x.shape[-1])  # (M, F)
        weight = keep.reshape(-1, 1)  # (M, 1)
        count = weight.sum().to(torch.float64)
        mean = torch.where(weight, rows, 0.0).sum(0) / count.clamp(min=1)
        square = torch.where(weight, (rows - mean) ** 2, 0.0).sum(0)
        total = self.count + count
        delta = mean - self.mean
        share = count / total.clamp(min=1)
        self.square += square + delta**2 * self.count * share
        self.mean += delta * share
        self.count += count

    def _constants(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, scale and clip of the statistics in force.

        Kept until a buffer changes: half a dozen operations on a few numbers would cost a rollout
        step more than normalising does. While a graph is captured they belong to the graph.
        """
        buffers = (self.count, self.mean, self.square)
        if is_capturing() or any(buffer.is_inference() for buffer in buffers):
            return self._prepare(dtype)
        state = (dtype, self.mean.device, *(buffer._version for buffer in buffers))
        if self._prepared is None or self._prepared[0] != state:
            self._prepared = (state, self._prepare(dtype))
        return self._prepared[1]

    def _prepare(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        # Before the first update features pass: mean 0, scale 1, no clip.
        seen = self.count > 0
        scale = torch.where(seen, torch.rsqrt(self.var + self.epsilon), 1.0)
        clip = torch.where(seen, self.clip, math.inf)
        return self.mean.to(dtype), scale.to(dtype), clip.to(dtype)

    def forward(self, x: Tensor | np.ndarray, mask: Tensor | np.ndarray | None = None) -> Tensor:
        """Normalise (..., F); rows where `mask` (...) is not 1 become exactly 0."""
        x = as_tensor(x, self.mean.device)
        dtype = x.dtype if x.is_floating_point() else torch.float32
        mean, scale, clip = self._constants(dtype)
        out = ((x - mean) * scale).clamp(-clip, clip)
        if mask is not None:
            out = torch.where((as_tensor(mask, x.device) == 1)[..., None], out, 0.0)
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningNorm:
        # Moving to half precision must not round the statistics: only the device follows.
        exact = dict(self.named_buffers())
        super()._apply(fn, recurse)
        self._prepared = None
        for name, buffer in exact.items():
            moved = getattr(self, name)
            if moved.dtype != torch.float64 and moved.device.type != "meta":
                setattr(self, name, buffer.to(moved.device))
        return self
