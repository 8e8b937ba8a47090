"""Rewards scaled to a common size, so that one learning rate and one value clip fit all tasks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["RewardScale"]


class RewardScale(nn.Module):
    """Divide rewards by the running standard deviation of the discounted return so far.

    Only the scale changes, never the sign or the zero. The discounted return of each environment
    starts anew with each episode; rows that only reset count for nothing.

    Args:
        num_envs: E.
        gamma: Discount per step.
        limit: Largest factor, for tasks in which a reward was hardly ever seen.
    """

    count: Tensor
    mean: Tensor
    square: Tensor
    running: Tensor

    def __init__(self, num_envs: int, gamma: float, *, limit: float = 100.0) -> None:
        super().__init__()
        self.gamma = gamma
        self.limit = limit
        for name in ("count", "mean", "square"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.register_buffer("running", torch.zeros(num_envs, dtype=torch.float64))

    @torch.no_grad()
    def update(self, reward: Tensor, ended: Tensor, valid: Tensor) -> None:
        """Take in a rollout: (T, E) each; `ended` = terminated or truncated."""
        returns = torch.zeros_like(reward, dtype=torch.float64)
        running = self.running
        for t in range(len(reward)):
            # G_t = r_t + gamma G_{t-1} within an episode
            running = torch.where(valid[t], reward[t] + self.gamma * running, running)
            returns[t] = running
            running = torch.where(ended[t], 0.0, running)
        self.running.copy_(running)
        self._merge(returns, valid)

    def _merge(self, returns: Tensor, valid: Tensor) -> None:
        """Merge moments by the parallel form of Welford's algorithm (Chan et al. 1979)."""
        count = valid.sum().double()
        mean = torch.where(valid, returns, 0.0).sum() / count.clamp(min=1)
        square = torch.where(valid, (returns - mean).square(), 0.0).sum()
        total = (self.count + count).clamp(min=1)
        delta = mean - self.mean
        self.square += square + delta.square() * self.count * count / total
        self.mean += delta * count / total
        self.count += count

    @property
    def factor(self) -> Tensor:
        """What rewards are multiplied by, a scalar; 1 before the first update."""
        deviation = (self.square / self.count.clamp(min=1)).sqrt()
        factor = (1 / deviation.clamp(min=1e-12)).clamp(max=self.limit)
        return torch.where(deviation > 0, factor, 1.0).float()
