"""Pairing two sets of equal size at small cost, for whole batches at once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["best_matching", "greedy_matching"]


def greedy_matching(cost: Tensor) -> Tensor:
    """Pair row and column of the least cost, again and again among those that are left.

    Args:
        cost: Finite costs, (E, n, n).

    Returns:
        The column of each row, int64, (E, n).
    """
    n = cost.shape[1]
    column = torch.zeros_like(cost[:, 0], dtype=torch.int64)
    for _ in range(n):
        best = cost.flatten(1).argmin(1, keepdim=True)  # (E, 1)
        i, j = best // n, best % n
        column = column.scatter(1, i, j)
        row_gone = torch.zeros_like(cost[:, 0], dtype=torch.bool).scatter(1, i, True)
        column_gone = torch.zeros_like(row_gone).scatter(1, j, True)
        cost = cost.masked_fill(row_gone[:, :, None] | column_gone[:, None, :], torch.inf)
    return column


def best_matching(cost: Tensor) -> Tensor:
    """Find the pairing of least total cost.

    Rows enter one after the other, each along a shortest augmenting path under costs that dual
    prices keep non-negative (Kuhn, 1955; Jonker and Volgenant, 1987). All environments walk their
    paths together; n^2 rounds at most, so that nothing has to be asked of a device.

    Args:
        cost: Finite costs, (E, n, n).

    Returns:
        The column of each row, int64, (E, n).
    """
    rows, n, _ = cost.shape
    device = cost.device
    # Index n stands for "no row" and for the column from which a path sets out.
    free = torch.full((rows, 1), n, dtype=torch.int64, device=device)
    padded = torch.nn.functional.pad(cost.double(), (0, 1, 0, 1))  # (E, n + 1, n + 1)
    row_price = torch.zeros(rows, n + 1, dtype=torch.float64, device=device)
    column_price = torch.zeros_like(row_price)
    row_of = free.repeat(1, n + 1)
    for row in range(n):
        row_of = row_of.scatter(1, free, row)
        at = free  # (E, 1), the column that was reached last
        slack = torch.full_like(row_price, torch.inf)
        came_from = free.repeat(1, n + 1)
        reached = torch.zeros_like(row_of, dtype=torch.bool)
        walking = torch.ones_like(free, dtype=torch.bool)
        for _ in range(row + 1):
            reached = reached | (torch.zeros_like(reached).scatter(1, at, True) & walking)
            here = row_of.gather(1, at)
            costs = padded.gather(1, here[:, :, None].expand(-1, 1, n + 1))[:, 0]
            reduced = costs - row_price.gather(1, here) - column_price
            closer = (reduced < slack) & ~reached & walking
            slack = torch.where(closer, reduced, slack)
            came_from = torch.where(closer, at, came_from)
            open_slack = slack.masked_fill(reached, torch.inf)
            open_slack[:, n] = torch.inf
            step, following = open_slack.min(1, keepdim=True)
            step = torch.where(walking, step, 0.0)
            row_price = row_price.scatter_add(1, row_of, step * reached)
            column_price = column_price - step * reached
            slack = torch.where(reached, slack, slack - step)
            at = torch.where(walking, following, at)
            walking = walking & (row_of.gather(1, at) != n)
            if device.type == "cpu" and not bool(walking.any()):
                break
        for _ in range(row + 1):  # hand each column of the path on to the row before it
            before = came_from.gather(1, at)
            row_of = torch.where(at == n, row_of, row_of.scatter(1, at, row_of.gather(1, before)))
            at = torch.where(at == n, at, before)
    return row_of[:, :n].argsort(1)
