"""Several choices made at once, independent of each other given the state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entity_encoder.distributions.categorical import MaskedCategorical
from entity_encoder.distributions.protocol import check_shape

__all__ = ["MaskedMultiCategorical", "ragged_index"]


def ragged_index(nvec: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Say how flat logits of differently many choices become a rectangular table.

    Args:
        nvec: Number of choices of each of M decisions.

    Returns:
        index: (M * K) place of each cell in the flat sum(nvec) logits, K = max(nvec).
        legal: (M, K) bool, False where a decision has no such choice.
    """
    counts = torch.as_tensor(nvec, dtype=torch.int64)
    width = int(counts.max())
    cells = torch.arange(width).expand(len(counts), width)
    legal = cells < counts[:, None]
    first = (counts.cumsum(0) - counts)[:, None]
    return torch.where(legal, first + cells, 0).flatten(), legal


class MaskedMultiCategorical:
    """M categorical choices per row; the joint log-probability and entropy are sums over them.

    Args:
        logits: (..., M, K) scores.
        mask: (..., M, K), True = legal. None: all legal.
        active: (..., M), True = that actor is there. Absent ones contribute nothing.
        start: Number of the first choice, one for all or (M,).
        shape: Shape of one action when it has more than one axis; its product is M.
        validate: As for `MaskedCategorical`.
        name: What the mask is called in errors.
        axes: What rows and actors are called there.

    Raises:
        ValueError: When an active actor has no legal choice, naming row and actor.
    """

    def __init__(
        self,
        logits: Tensor,
        mask: Tensor | None = None,
        active: Tensor | None = None,
        *,
        start: int | Tensor = 0,
        shape: Sequence[int] | None = None,
        validate: bool = True,
        name: str = "action mask",
        axes: Sequence[str] = ("row", "actor"),
    ) -> None:
        self.each = MaskedCategorical(
            logits, mask, active, start=start, validate=validate, name=name, axes=axes
        )
        self.shape = logits.shape[:-2]
        self._event = tuple(logits.shape[-2:-1] if shape is None else shape)

    @classmethod
    def from_flat(
        cls, logits: Tensor, nvec: Sequence[int], mask: Tensor | None = None
    ) -> MaskedMultiCategorical:
        """Build from flat scores when the decisions have different numbers of choices.

        Args:
            logits: (..., sum(nvec)), the decisions one after the other.
            nvec: Number of choices of each decision.
            mask: (..., sum(nvec)), True = legal.
        """
        index, legal = (part.to(logits.device) for part in ragged_index(nvec))
        table = logits.index_select(-1, index).unflatten(-1, legal.shape)
        if mask is not None:
            legal = legal & (mask.index_select(-1, index).unflatten(-1, legal.shape) != 0)
        return cls(table, legal)

    @property
    def probs(self) -> Tensor:
        """Probabilities (..., M, K): exactly 0 where illegal, all 0 for absent actors."""
        return self.each.probs

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw all choices: (..., *shape) int64."""
        return self._shaped(self.each.sample(generator))

    def mode(self) -> Tensor:
        """Return the likeliest choices: (..., *shape) int64."""
        return self._shaped(self.each.mode())

    def _shaped(self, index: Tensor) -> Tensor:
        return index if len(self._event) == 1 else index.unflatten(-1, self._event)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the joint log-probability, the sum over choices: (...)."""
        check_shape(action, self.shape + self._event)
        flat = action if len(self._event) == 1 else action.flatten(-len(self._event))
        return self.each.log_prob(flat).sum(-1)

    def entropy(self) -> Tensor:
        """Return the joint entropy, the sum over choices: (...)."""
        return self.each.entropy().sum(-1)

    def to_env(self, action: Tensor) -> Tensor:
        """Return the action as it is."""
        return action
