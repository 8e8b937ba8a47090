"""Action heads for gymnasium's own spaces, read from the pooled vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder.distributions import (
    DiagonalGaussian,
    MaskedBernoulli,
    MaskedCategorical,
    MaskedMultiCategorical,
)
from entity_encoder.distributions.multi_categorical import ragged_index
from entity_encoder.distributions.protocol import read_mask, values_at_hand
from entity_encoder.encoding import EntityEncoding
from entity_encoder.heads.base import ActionHead
from entity_encoder.heads.scores import PooledHead

__all__ = ["BoxHead", "DiscreteHead", "MultiBinaryHead", "MultiDiscreteHead"]


class DiscreteHead(ActionHead):
    """Discrete: scores from the pooled vector; mask of shape (n,)."""

    def __init__(
        self, space: spaces.Discrete, mask_key: str, masked: bool, width: int, hidden: Sequence[int]
    ) -> None:
        super().__init__(space, mask_key, masked)
        self.start = int(space.start)
        self.choices = int(space.n)
        self.scores = PooledHead(width, self.choices, hidden=hidden)

    def _mask_shape(self, slots: Mapping[str, Any]) -> tuple[Any, ...]:
        return (self.choices,)

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> MaskedCategorical:
        """See `ActionHead.forward`."""
        logits = self.scores(encoding.pooled)
        return MaskedCategorical(
            logits,
            self.legal(observation, logits),
            active,
            start=self.start,
            validate=validate,
            name=self.mask_name,
            axes=("environment",),
        )


class MultiDiscreteHead(ActionHead):
    """MultiDiscrete: scores from the pooled vector; mask of shape (sum(nvec),), one after another.

    With equally many choices everywhere, a mask of shape (*space.shape, choices) is read as well.
    """

    index: Tensor
    exists: Tensor
    start: Tensor

    def __init__(
        self,
        space: spaces.MultiDiscrete,
        mask_key: str,
        masked: bool,
        width: int,
        hidden: Sequence[int],
    ) -> None:
        super().__init__(space, mask_key, masked)
        nvec = space.nvec.flatten().tolist()
        self.event = space.shape
        self.ragged = len(set(nvec)) > 1
        self.scores = PooledHead(width, sum(nvec), hidden=hidden)
        index, exists = ragged_index(nvec)
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("exists", exists, persistent=False)
        start = torch.from_numpy(space.start.flatten().astype(np.int64))
        self.register_buffer("start", start, persistent=False)

    def _table(self, flat: Tensor) -> Tensor:
        """Cut (..., sum(nvec)) into decisions and choices: (..., M, K)."""
        if self.ragged:
            flat = flat.index_select(-1, self.index)
        return flat.unflatten(-1, self.exists.shape)

    def _mask_shape(self, slots: Mapping[str, Any]) -> tuple[Any, ...]:
        return (int(self.exists.sum()),)

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> MaskedMultiCategorical:
        """See `ActionHead.forward`."""
        flat = self.scores(encoding.pooled)
        legal = self._read_table(observation, flat, validate)
        if self.ragged:
            legal = self.exists if legal is None else legal & self.exists
        rows = (
            None if active is None else active[..., None].expand(*flat.shape[:-1], len(self.start))
        )
        return MaskedMultiCategorical(
            self._table(flat),
            legal,
            rows,
            start=self.start,
            shape=self.event,
            validate=validate,
            name=self.mask_name,
            axes=("environment", "decision"),
        )

    def _read_table(
        self, observation: Mapping[str, Any], flat: Tensor, validate: bool
    ) -> Tensor | None:
        legal = self.legal(observation, flat)
        if legal is None:
            return None
        if not self.ragged and legal.dim() == flat.dim() + len(self.event):
            legal = legal.flatten(-len(self.event) - 1)
        legal = read_mask(
            legal, flat.shape, name=self.mask_name, look=validate and values_at_hand(legal)
        )
        return self._table(legal)


class MultiBinaryHead(ActionHead):
    """MultiBinary: log-odds from the pooled vector; mask of the space's shape, 1 = may be on."""

    def __init__(
        self,
        space: spaces.MultiBinary,
        mask_key: str,
        masked: bool,
        width: int,
        hidden: Sequence[int],
    ) -> None:
        super().__init__(space, mask_key, masked)
        self.event = space.shape
        self.scores = PooledHead(width, math.prod(self.event), hidden=hidden)

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> MaskedBernoulli:
        """See `ActionHead.forward`."""
        logits = self.scores(encoding.pooled).unflatten(-1, self.event)
        return MaskedBernoulli(
            logits,
            self.legal(observation, logits),
            active,
            event_dims=len(self.event),
            validate=validate,
            name=self.mask_name,
        )


class BoxHead(ActionHead):
    """Box: a Gaussian whose mean is read from the pooled vector; mask of the space's shape.

    Between two finite bounds the mean starts in the middle and a standard deviation of 1 is half
    the width, whatever the units of the space.
    """

    low: Tensor
    high: Tensor
    middle: Tensor
    unit: Tensor

    def __init__(
        self,
        space: spaces.Box,
        mask_key: str,
        masked: bool,
        width: int,
        hidden: Sequence[int],
        *,
        squash: bool = False,
    ) -> None:
        super().__init__(space, mask_key, masked)
        self.event = space.shape
        self.squash = squash
        self.scores = PooledHead(width, math.prod(self.event), hidden=hidden)
        self.log_std = nn.Parameter(torch.zeros(self.event))
        low, high = (
            torch.from_numpy(bound.astype(np.float32)) for bound in (space.low, space.high)
        )
        bounded = torch.isfinite(low) & torch.isfinite(high)
        if squash and not bool(bounded.all()):
            raise ValueError(f"squash=True must have finite bounds everywhere, got {space}")
        scaled = bounded & (high > low) & (not squash)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        middle = torch.where(scaled, low / 2 + high / 2, 0.0)
        self.register_buffer("middle", middle, persistent=False)
        unit = torch.where(scaled, high / 2 - low / 2, 1.0)
        self.register_buffer("unit", unit, persistent=False)

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> DiagonalGaussian:
        """See `ActionHead.forward`."""
        scores = self.scores(encoding.pooled).unflatten(-1, self.event)
        return DiagonalGaussian(
            self.middle + self.unit * scores,
            self.log_std + self.unit.log(),
            active,
            mask=self.legal(observation, scores),
            low=self.low,
            high=self.high,
            squash=self.squash,
            event_dims=len(self.event),
            validate=validate,
            name=self.mask_name,
        )
