"""How many entities there are, as numbers that a linear layer can read exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["COUNT_EDGES", "SetCounts"]

#: Every number up to 10 has an input of its own, larger ones share some, beyond 32 all look alike.
COUNT_EDGES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32)


class SetCounts(nn.Module):
    """Count the entities of each group, in the piecewise linear encoding of arXiv 2203.05556.

    A count fills the gaps between `COUNT_EDGES` one after the other, each from 0 to 1. Plain
    numbers would leave a policy that must tell 8 from 9 with two nearly equal inputs.

    Args:
        n_groups: Number of groups G.
    """

    edges: Tensor

    def __init__(self, n_groups: int) -> None:
        super().__init__()
        self.width = n_groups * (len(COUNT_EDGES) - 1)
        # A buffer, so that no call copies it to the device; not saved, as it is no weight.
        self.register_buffer("edges", torch.tensor(COUNT_EDGES).float(), persistent=False)

    def forward(self, masks: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Encode the counts of G masks, (B, slots) bool each: (B, width)."""
        counts = torch.stack([mask.sum(1) for mask in masks], dim=1).to(dtype)  # (B, G)
        low, high = self.edges[:-1].to(dtype), self.edges[1:].to(dtype)
        filled = (counts[..., None] - low) / (high - low)
        return filled.clamp(0.0, 1.0).flatten(1)

    @torch.no_grad()
    def initialise(self, layer: nn.Linear) -> None:
        """Zero the weights of a layer whose last inputs are counts.

        Numbers that training never showed then say nothing, rather than something random, to a
        policy that meets more entities than it was trained on.
        """
        layer.weight[:, -self.width :] = 0.0
