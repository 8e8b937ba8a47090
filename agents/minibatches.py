"""Which samples are learned from together: shuffled minibatches, cut into cache-sized chunks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["chunks_by_size", "minibatch_count", "shuffled"]


def minibatch_count(samples: int, size: int) -> int:
    """Return how many minibatches of at most `size` hold all samples; at least 1."""
    return max(1, -(-samples // size))


def shuffled(index: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `count` random minibatches that hold every index exactly once.

    Their sizes differ by at most one, so no minibatch is a remainder of a few samples.

    Args:
        index: (n,) int64, on the device where learning happens; nothing leaves it.
        count: Number of minibatches.
        generator: Source of randomness on that device.
    """
    order = torch.randperm(len(index), generator=generator, device=index.device)
    yield from index.index_select(0, order).tensor_split(count)


def chunks_by_size(count: Tensor, max_entities: int) -> list[Tensor]:
    """Cut a minibatch into chunks of similar samples with at most about `max_entities` entities.

    Activations of a chunk then stay in a CPU's caches through forward and backward, and sets of
    one size, which are attended to together, are neighbours.

    Args:
        count: (n,) entities of each sample, on the CPU.
        max_entities: Bound on a chunk's sum; a single sample may exceed it.

    Returns:
        Places in the minibatch, every one exactly once.
    """
    order = torch.argsort(count, stable=True)
    # An empty set still costs a row in the heads.
    ends = count.index_select(0, order).clamp(min=1).cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    pieces = max(1, -(-total // max_entities))
    # Equal shares of the entities: the last chunk is no crumb.
    bounds = torch.arange(1, pieces) * (total / pieces)
    cuts = torch.searchsorted(ends, bounds.to(ends.dtype)).tolist()
    return [piece for piece in order.tensor_split(cuts) if len(piece)]
