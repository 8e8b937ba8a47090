"""Switches that are on or off, some of them stuck at off."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from entity_encoder.distributions.protocol import (
    check_shape,
    full_precision,
    read_mask,
    values_at_hand,
)

__all__ = ["MaskedBernoulli"]


class MaskedBernoulli:
    """Independent switches; a masked one is off with probability 1.

    Args:
        logits: (..., *event) log-odds of "on".
        mask: (..., *event), True = the switch may be on. None: all may.
        active: (...), True = the row acts. Others: all off, log-probability and entropy 0.
        event_dims: Number of trailing axes that form one action.
        validate: Whether to check that the mask holds zeros and ones (on CPU).
        name: What the mask is called in errors.
    """

    def __init__(
        self,
        logits: Tensor,
        mask: Tensor | None = None,
        active: Tensor | None = None,
        *,
        event_dims: int = 1,
        validate: bool = True,
        name: str = "action mask",
    ) -> None:
        logits = full_precision(logits)
        look = validate and values_at_hand(logits)
        self.shape = logits.shape[: logits.dim() - event_dims]
        self._axes = tuple(range(-event_dims, 0))
        self.mask = None if mask is None else read_mask(mask, logits.shape, name=name, look=look)
        if active is not None:
            active = read_mask(active, self.shape, name=f"active rows of the {name}", look=look)
            rows = active.reshape(active.shape + (1,) * event_dims)
            self.mask = rows if self.mask is None else self.mask & rows
        self.active = active
        # A stuck switch gets log-odds 0, so that nothing below has to divide by them.
        self.logits = logits if self.mask is None else torch.where(self.mask, logits, 0.0)

    def _free(self, values: Tensor, stuck: float | Tensor = 0.0) -> Tensor:
        """Put `stuck` where a switch cannot be turned on."""
        return values if self.mask is None else torch.where(self.mask, values, stuck)

    @property
    def probs(self) -> Tensor:
        """Probability of "on", (..., *event): exactly 0 where masked."""
        return self._free(self.logits.sigmoid())

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw every switch: (..., *event) int64 of 0 and 1."""
        uniform = torch.empty_like(self.logits).uniform_(generator=generator)  # in [0, 1)
        return (uniform < self.probs.detach()).long()

    def mode(self) -> Tensor:
        """Return the likelier state of each switch, off where both are: (..., *event) int64."""
        return (self.logits > 0).long()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the joint log-probability: (...); minus infinity when a masked switch is on."""
        check_shape(action, self.logits.shape)
        on = action != 0
        log_p = F.logsigmoid(torch.where(on, self.logits, -self.logits))
        if self.mask is not None:
            stuck = torch.where(on, -torch.inf, 0.0)
            if self.active is not None:
                rows = self.active.reshape(self.active.shape + (1,) * len(self._axes))
                stuck = torch.where(rows, stuck, 0.0)
            log_p = self._free(log_p, stuck)
        return log_p.sum(self._axes)

    def entropy(self) -> Tensor:
        """Return the joint entropy: (...)."""
        # H = log(1 + e^-a) + a / (1 + e^a) with a = |x|: nothing large is subtracted.
        a = self.logits.abs()
        entropy = F.softplus(-a) + a * (-a).sigmoid()
        return self._free(entropy).sum(self._axes)

    def to_env(self, action: Tensor) -> Tensor:
        """Return the action as it is."""
        return action
