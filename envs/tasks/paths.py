"""Shortest ways on small grids, for whole batches at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["STEPS", "distances"]

#: Moves (dx, dy) by action: up, right, down, left.
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def _nearest_neighbour(grid: Tensor) -> Tensor:
    """Return the smallest value among the four neighbours, (B, H, W)."""
    wide = pad(grid, (1, 1, 1, 1), value=torch.inf)
    sides = (wide[:, 2:, 1:-1], wide[:, :-2, 1:-1], wide[:, 1:-1, 2:], wide[:, 1:-1, :-2])
    return torch.minimum(torch.minimum(*sides[:2]), torch.minimum(*sides[2:]))


def distances(goal: Tensor, blocked: Tensor, rounds: int) -> Tensor:
    """Count the steps from every place to the nearest goal around what is blocked.

    Args:
        goal: Where the goals are, bool, (B, H, W), rows from y = 0 upwards.
        blocked: What cannot be entered, bool, (B, H, W). Goals always can.
        rounds: Longest way that is looked for.

    Returns:
        Number of steps, float32, (B, H, W); infinite where no way is short enough. The number in
        a blocked place is that of leaving it.
    """
    far = torch.where(goal, 0.0, torch.inf)
    wall = blocked & ~goal
    for _ in range(rounds):
        closer = torch.minimum(far, _nearest_neighbour(far) + 1.0).masked_fill(wall, torch.inf)
        if far.device.type == "cpu" and torch.equal(closer, far):
            break
        far = closer
    return torch.minimum(far, _nearest_neighbour(far) + 1.0)
