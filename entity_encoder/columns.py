"""Indices of columns on the device where they are needed, without a copy at every call."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from entity_encoder.pinning import is_capturing

__all__ = ["column_index"]


def column_index(columns: Sequence[int], like: Tensor) -> Tensor:
    """Return column numbers as a tensor on the device of `like`."""
    if is_capturing():
        return torch.tensor(columns, device=like.device, dtype=torch.long)
    return _kept_index(tuple(columns), like.device)


@functools.lru_cache(maxsize=1024)
def _kept_index(columns: tuple[int, ...], device: torch.device) -> Tensor:
    """Copy them there once: a copy per call would wait for the device."""
    return torch.tensor(columns, device=device, dtype=torch.long)
