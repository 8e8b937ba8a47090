"""Recurrent memory after pooling: a GRU whose state is emptied where an episode begins."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entity_encoder.linear import RowLinear

__all__ = ["Memory"]


class Memory(nn.Module):
    """Add what a GRU remembers to a pooled encoding.

    The output is `pooled + project(h)`, so the policy can do without memory from the start.

    Args:
        width: Width W of the pooled encoding.
        size: Width H of the memory.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.gates_input = RowLinear(width, 3 * size)
        self.gates_state = RowLinear(size, 3 * size)
        self.project = RowLinear(size, width)
        for layer in (self.gates_input, self.gates_state):
            for block in layer.weight.split(size):
                nn.init.orthogonal_(block.data)
            nn.init.zeros_(layer.bias)
        nn.init.orthogonal_(self.project.weight, 0.1)
        nn.init.zeros_(self.project.bias)

    def initial(self, num_envs: int) -> Tensor:
        """Return an empty memory, (E, H)."""
        return self.project.weight.new_zeros(num_envs, self.size)

    def forward(
        self, pooled: Tensor, state: Tensor | None, begins: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Remember one step (E, W), or a sequence of steps (T, E, W).

        Args:
            pooled: (E, W) or (T, E, W).
            state: (E, H) memory before; None is an empty one.
            begins: (E,) or (T, E) bool, where the memory is emptied first.

        Returns:
            The output, shaped like `pooled`, and the memory afterwards, (E, H).
        """
        gates = self.gates_input(pooled)
        sequence = gates if gates.dim() == 3 else gates[None]  # (T, E, 3 H)
        h = self.initial(sequence.shape[1]) if state is None else state
        flags = None if begins is None else begins.reshape(sequence.shape[:2])
        states = []
        for t, inputs in enumerate(sequence.unbind(0)):
            if flags is not None:
                h = torch.where(flags[t][:, None], 0.0, h)
            h = self._cell(inputs, h)
            states.append(h)
        remembered = torch.stack(states) if gates.dim() == 3 else h
        return pooled + self.project(remembered), h

    def _cell(self, inputs: Tensor, h: Tensor) -> Tensor:
        """One step of a GRU (Cho et al. 2014), (E, 3 H) and (E, H) to (E, H)."""
        reset_x, update_x, new_x = inputs.chunk(3, dim=-1)
        reset_h, update_h, new_h = self.gates_state(h).chunk(3, dim=-1)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        return torch.lerp(new, h, update)
