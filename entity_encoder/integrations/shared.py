"""One pass of the encoder for actor and critic, where a library asks for them in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entity_encoder.encoder import EntityEncoder
from entity_encoder.encoding import EntityEncoding

__all__ = ["SharedPass"]


class SharedPass(nn.Module):
    """Encode an observation once, however often it is asked for in a row.

    The last encoding is returned again only if nothing it depends on has changed: the same object
    is asked for, its tensors, the weights and the statistics have not been written to, and
    gradients are wanted as before. NumPy arrays do not tell whether they were written to, and
    collectors reuse them, so for arrays this holds only while gradients are recorded, which is
    when a library evaluates one minibatch.

    Args:
        encoder: The encoder to share.
    """

    def __init__(self, encoder: EntityEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self._last: dict[bool, tuple[Any, tuple[Any, ...], EntityEncoding]] = {}

    def forward(
        self, source: Any, read: Callable[[Any], Mapping[str, Any]], *, critic: bool = False
    ) -> EntityEncoding:
        """Return the encoding of an observation.

        Args:
            source: What the library passes: a tensor, or a mapping of tensors or arrays.
            read: Turns `source` into an observation; called only when a pass is made.
            critic: Whether critic-only groups and features take part.
        """
        state = self._state(source)
        if state is not None and critic in self._last:
            last, before, encoding = self._last[critic]
            if last is source and before == state:
                return encoding
        encoding = self.encoder(read(source), critic=critic)
        if state is None:
            self._last.pop(critic, None)
        else:
            self._last[critic] = (source, state, encoding)
        return encoding

    def _state(self, source: Any) -> tuple[Any, ...] | None:
        """Return what tells that a pass would give the same again; None where nothing tells."""
        learning = torch.is_grad_enabled()
        leaves = [source] if isinstance(source, Tensor | np.ndarray) else list(_leaves(source))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if len(tensors) < len(leaves) and not learning:
            return None
        tensors += [*self.encoder.parameters(), *self.encoder.buffers()]
        if any(tensor.is_inference() for tensor in tensors):  # they count no writes
            return None
        return (learning, self.encoder.training, *(tensor._version for tensor in tensors))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last encoding behind in copies: its graph cannot be copied."""
        return {**self.__dict__, "_last": {}}


def _leaves(source: Any) -> list[Any]:
    """Return the tensors and arrays of a mapping, nested or not."""
    found: list[Any] = []
    for key in source.keys():  # noqa: SIM118 (mappings of other libraries iterate over rows)
        value = source[key]
        found += [value] if isinstance(value, Tensor | np.ndarray) else _leaves(value)
    return found
