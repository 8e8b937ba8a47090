"""The gradient of a minibatch as the sum of those of its chunks, several computed at once.

Chunks are computed by threads and added in their own order, each with one thread of torch. So the
result is bitwise the same for any number of threads, and the cores are busy with chunks that fit
their caches instead of waiting for each other within small matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["ChunkRunner", "Gradient", "Piece"]

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass
class Piece:
    """What one chunk contributes.

    Attributes:
        gradients: One per parameter, None where the chunk does not depend on it.
        sums: Sums of loss terms over its samples.
        log_ratio: Largest absolute log ratio, ().
    """

    gradients: Sequence[Tensor | None]
    sums: Tensor
    log_ratio: Tensor


class Gradient:
    """Add up gradients chunk by chunk.

    Args:
        parameters: What they belong to.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._total: list[Tensor | None] = [None] * len(parameters)

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add one chunk's."""
        places, old, new = [], [], []
        for i, (total, gradient) in enumerate(zip(self._total, gradients, strict=True)):
            if total is None:
                self._total[i] = gradient
            elif gradient is not None:
                places.append(i)
                old.append(total)
                new.append(gradient)
        # Not in place: what autograd returns may share memory with something else.
        for i, total in zip(places, torch._foreach_add(old, new) if old else (), strict=True):
            self._total[i] = total

    def store(self) -> None:
        """Put the sums where optimisers look for them."""
        for parameter, total in zip(self._parameters, self._total, strict=True):
            parameter.grad = None if total is None else total.contiguous()


class ChunkRunner:
    """Apply a function to chunks, in order, with several threads.

    Args:
        threads: How many chunks are computed at once.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, function: Callable[[In], Out], chunks: Sequence[In]) -> Iterator[Out]:
        """Yield the results in the order of the chunks."""
        if self.threads == 1 or len(chunks) < 2:
            return map(function, chunks)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="chunk")
        return self._pool.map(function, chunks)
