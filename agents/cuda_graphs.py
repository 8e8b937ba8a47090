"""Functions captured as CUDA graphs: one launch instead of hundreds.

A graph replays kernels on fixed addresses. So inputs are copied into memory that stays, shapes
never change, and nothing inside may wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from entity_encoder.agents.trees import Tree, leaves, map_tree

__all__ = ["Captured"]

WARM_UP = 3  # calls after which libraries have chosen their kernels and allocated their memory


class Captured:
    """Call a function of a tree of tensors by replaying its kernels.

    Without CUDA the function is called on the same fixed memory, uncaptured.

    Args:
        function: Reads the given tree, and anything else at addresses that stay; returns a tree.
        preserve: Tensors that the function changes: warming up must leave them alone.
        generators: Random generators that it draws from.
    """

    def __init__(
        self,
        function: Callable[[Any], Tree],
        *,
        preserve: Sequence[Tensor] = (),
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        self._function = function
        self._preserve = preserve
        self._generators = generators
        self._inputs: Tree = None
        self._outputs: Tree = None
        self._graph: Any = None

    def __call__(self, inputs: Tree) -> Tree:
        """Return the function's result; the next call overwrites it.

        Raises:
            ValueError: When a shape differs from that of the first call.
        """
        if self._inputs is None:
            self._inputs = map_tree(torch.clone, inputs)
        for where, x in zip(leaves(self._inputs), leaves(inputs), strict=True):
            if where.shape != x.shape:
                raise ValueError(
                    f"inputs of a captured function must keep their shapes, got {tuple(x.shape)} "
                    f"after {tuple(where.shape)}"
                )
            where.copy_(x)
        if leaves(self._inputs)[0].device.type != "cuda":
            return self._function(self._inputs)
        if self._graph is None:
            self._capture()
        self._graph.replay()
        return self._outputs

    def _capture(self) -> None:
        kept = [x.detach().clone() for x in self._preserve]
        drawn = [generator.get_state() for generator in self._generators]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._function(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for x, old in zip(self._preserve, kept, strict=True):
                x.copy_(old)
        for generator, state in zip(self._generators, drawn, strict=True):
            generator.set_state(state)
        self._graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            self._graph.register_generator_state(generator)
        with torch.cuda.graph(self._graph):
            self._outputs = self._function(self._inputs)
