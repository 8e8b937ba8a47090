"""One pass of the encoder for actor and critic, where a library asks for them in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        self, source: Any, observation: Mapping[str, Any], *, critic: bool = False
    ) -> EntityEncoding:
        """Return the encoding of an observation.

        Args:
            source: What the library passed; the same object means the same observation.
            observation: What was read from it: tensors or arrays by key.
            critic: Whether critic-only groups and features take part.
        """
        state = self._state(observation)
        if state is not None and critic in self._last:
            last, before, encoding = self._last[critic]
            if last is source and before == state:
                return encoding
        encoding = self.encoder(observation, critic=critic)
        if state is None:
            self._last.pop(critic, None)
        else:
            self._last[critic] = (source, state, encoding)
        return encoding

    def _state(self, observation: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Return what tells that a pass would give the same again; None where nothing tells."""
        learning = torch.is_grad_enabled()
        tensors = [value for value in observation.values() if isinstance(value, Tensor)]
        if len(tensors) < len(observation) and not learning:
            return None
        tensors += [*self.encoder.parameters(), *self.encoder.buffers()]
        if any(tensor.is_inference() for tensor in tensors):  # they count no writes
            return None
        return (learning, self.encoder.training, *(tensor._version for tensor in tensors))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last encoding behind in copies: its graph cannot be copied."""
        return {**self.__dict__, "_last": {}}
