"""Several processes that learn as one: what has to be added up over all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["Ranks", "Statistics"]


class Statistics(Protocol):
    """A module that keeps count, mean and sum of squared deviations."""

    count: Tensor
    mean: Tensor
    square: Tensor


class Ranks:
    """The processes that `torchrun` started, or just this one.

    For a single process every method does nothing, or returns what it was given.

    Args:
        rank: Number of this process.
        size: Number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def join(cls, device: torch.device) -> Ranks:
        """Join the group that torchrun's variables describe; gloo on CPU, nccl on CUDA."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes logs and checkpoints."""
        return self.rank == 0

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.size > 1:
            x = x.clone()
            dist.all_reduce(x)
        return x

    def largest(self, value: int, device: torch.device) -> int:
        """Return the largest of a number over all processes."""
        if self.size == 1:
            return value
        x = torch.tensor(value, device=device)
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return int(x)

    def gather(self, value: Any) -> list[Any]:
        """Return the value of every process, in the order of ranks, on all of them."""
        if self.size == 1:
            return [value]
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, value)
        return every

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes, in one message."""
        if self.size == 1:
            return
        for p in parameters:
            if p.grad is None:  # this process met no entity of that kind
                p.grad = torch.zeros_like(p)
        grads = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads])
        dist.all_reduce(flat)
        for grad, piece in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(piece.view_as(grad))

    def update_statistics(
        self, statistics: Iterable[Statistics], update: Callable[[], None]
    ) -> None:
        """Update running statistics by what all processes saw, in the order of ranks.

        Args:
            statistics: Modules, equal on all processes before and after.
            update: Lets them see this process's part.
        """
        if self.size == 1:
            update()
            return
        modules = list(statistics)
        before = [[m.count.clone(), m.mean.clone(), m.square.clone()] for m in modules]
        for m in modules:
            for buffer in (m.count, m.mean, m.square):
                buffer.zero_()
        update()
        parts = [x for m in modules for x in (m.count, m.mean, m.square)]
        own = torch.cat([x.reshape(-1) for x in parts])
        every = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(every, own)
        sizes = [x.numel() for x in parts]
        pieces = [seen.split(sizes) for seen in every]
        for i, (m, old) in enumerate(zip(modules, before, strict=True)):
            for buffer, value in zip((m.count, m.mean, m.square), old, strict=True):
                buffer.copy_(value)
            for seen in pieces:
                _merge(m, *seen[3 * i : 3 * i + 3])


def _merge(m: Statistics, count: Tensor, mean: Tensor, square: Tensor) -> None:
    """Merge moments by the parallel form of Welford's algorithm (Chan et al. 1979)."""
    count = count.reshape(())
    share = count / (m.count + count).clamp(min=1)
    delta = mean.view_as(m.mean) - m.mean
    m.square += square.view_as(m.square) + delta.square() * m.count * share
    m.mean += delta * share
    m.count += count
