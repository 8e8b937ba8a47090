"""One choice out of K per row, some of them impossible."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from entity_encoder.distributions.protocol import (
    check_shape,
    full_precision,
    name_place,
    read_mask,
    values_at_hand,
)

__all__ = ["MaskedCategorical"]

# exp of anything below is 0 in fp32 and fp64, so p log p loses nothing by stopping here; p times
# minus infinity, or a finite number near the limit of the type, would make gradients NaN.
LOWEST_LOG = -1e4


class MaskedCategorical:
    """A categorical distribution in which masked choices have probability exactly 0.

    A row that is not active belongs to nobody (an absent actor, an environment that is being
    reset): its action is the first one, log-probability and entropy are 0 and it passes no
    gradient, whatever its logits and mask hold.

    Args:
        logits: (..., K) scores of any floating-point type; computed on in fp32 at least.
        mask: (..., K), True = legal; bool, integer or float zeros and ones. None: all legal.
        active: (...), True = the row acts. None: all rows.
        start: Number of the first choice, for spaces that do not count from 0.
        validate: Whether a row without a legal choice is an error. Where looking would wait for a
            device (anywhere but on the CPU) or break a capture, and without `validate`, such a row
            counts as not active.
        name: What the mask is called in errors.
        axes: What the trailing leading axes are called there.

    Raises:
        ValueError: When an active row has no legal choice, naming the row; when the mask's shape
            does not fit.
    """

    def __init__(
        self,
        logits: Tensor,
        mask: Tensor | None = None,
        active: Tensor | None = None,
        *,
        start: int | Tensor = 0,
        validate: bool = True,
        name: str = "action mask",
        axes: Sequence[str] = ("row",),
    ) -> None:
        logits = full_precision(logits)
        look = validate and values_at_hand(logits)
        self.shape = logits.shape[:-1]
        self.choices = logits.shape[-1]
        self.start = start
        self.mask = None if mask is None else read_mask(mask, logits.shape, name=name, look=look)
        self.active = (
            None
            if active is None
            else read_mask(active, self.shape, name=f"active rows of the {name}", look=look)
        )
        if self.mask is None and not self.choices:
            self.mask = torch.ones_like(logits, dtype=torch.bool)  # (..., 0): none is legal
        if self.mask is not None:
            self._treat_stuck_rows(self.mask, look, name, axes)
        self.log_probs = torch.log_softmax(self._close(logits), dim=-1)
        self._probs: Tensor | None = None

    def _close(self, logits: Tensor) -> Tensor:
        """Put minus infinity where a choice is illegal, and 0 everywhere in inactive rows."""
        if self.active is None:
            return logits if self.mask is None else torch.where(self.mask, logits, -math.inf)
        rows = self.active[..., None]
        keep = rows if self.mask is None else self.mask & rows
        return torch.where(keep, logits, torch.where(rows, -math.inf, 0.0))

    def _treat_stuck_rows(self, mask: Tensor, look: bool, name: str, axes: Sequence[str]) -> None:
        """Refuse active rows without a legal choice, or make them inactive."""
        able = mask.any(dim=-1).expand(self.shape)
        if not look:
            self.active = able if self.active is None else self.active & able
            return
        stuck = ~able if self.active is None else self.active & ~able
        if bool(stuck.any()):
            place = name_place(torch.nonzero(stuck)[0].tolist(), axes)
            raise ValueError(
                f"{name} must leave at least one legal choice in every row, got none in {place}; "
                "rows that do not act must be marked with active=False"
            )

    @property
    def probs(self) -> Tensor:
        """Probabilities (..., K): exactly 0 where illegal, all 0 in inactive rows."""
        probs = self._exp()
        return probs if self.active is None else probs.masked_fill(~self.active[..., None], 0.0)

    def _exp(self) -> Tensor:
        if self._probs is None:
            self._probs = self.log_probs.exp()
        return self._probs

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw a choice per row: (...) int64."""
        probs = self._exp().detach()
        # The smallest of K exponential waiting times with rates p_k is the k-th with chance p_k.
        # A waiting time of exactly 0 would make 0 / 0 of an illegal choice.
        waiting = torch.empty_like(probs).exponential_(generator=generator)
        return self._index(probs / waiting.add_(torch.finfo(probs.dtype).tiny))

    def mode(self) -> Tensor:
        """Return the likeliest choice per row, the first of equals: (...) int64."""
        return self._index(self.log_probs)

    def _index(self, scores: Tensor) -> Tensor:
        if values_at_hand(scores) and not self.choices:  # nothing to take the largest of
            return scores.new_zeros(self.shape, dtype=torch.int64) + self.start
        index = scores.argmax(dim=-1)
        if self.active is not None:
            index = index.masked_fill(~self.active, 0)
        return index + self.start

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log p(action): (...); minus infinity for an illegal choice."""
        check_shape(action, self.shape)
        index = action.long() - self.start
        if self.active is None:
            return self.log_probs.gather(-1, index[..., None]).squeeze(-1)
        if values_at_hand(action) and not self.choices:
            return self.log_probs.sum(-1)
        # An inactive row may hold any number: it is never looked up.
        index = index.masked_fill(~self.active, 0)
        picked = self.log_probs.gather(-1, index[..., None]).squeeze(-1)
        return picked.masked_fill(~self.active, 0.0)

    def entropy(self) -> Tensor:
        """Return -sum_k p_k log p_k: (...), with 0 log 0 = 0."""
        terms = self._exp() * self.log_probs.clamp(min=LOWEST_LOG)
        entropy = -terms.sum(-1)
        return entropy if self.active is None else entropy.masked_fill(~self.active, 0.0)

    def to_env(self, action: Tensor) -> Tensor:
        """Return the action as it is."""
        return action
