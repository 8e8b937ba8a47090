"""What an encoder returns: one vector per set, one vector per entity, and the masks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from entity_encoder.errors import choose
from entity_encoder.layout import Layout, tokens

__all__ = ["EntityEncoding"]


class EntityEncoding:
    """The encoded observation.

    Attributes:
        pooled: (..., output_dim), the whole set.
        mask: (..., slots) bool, True = an entity is there, all groups side by side.
        attention: (..., layers, H, N, N) attention maps when they were asked for, else None.
            With pooling="class" the last row and column are the class token's.
    """

    def __init__(
        self,
        pooled: Tensor,
        mask: Tensor,
        *,
        layouts: Sequence[Layout],
        rows: Sequence[Tensor],
        slices: dict[str, slice],
        attention: Tensor | None = None,
    ) -> None:
        self.pooled = pooled
        self.mask = mask
        self.attention = attention
        self._layouts = layouts
        self._rows = rows
        self._slices = slices
        self._entities: Tensor | None = None

    @property
    def entities(self) -> Tensor:
        """(..., slots, d_model), exactly 0 where absent; put into slots on first use."""
        if self._entities is None:
            lead, slots = self.mask.shape[:-1], self.mask.shape[-1]
            table = tokens(self._layouts, self._rows)[:, :slots]
            self._entities = table.reshape(*lead, slots, table.shape[-1])
        return self._entities

    def group(self, name: str) -> tuple[Tensor, Tensor]:
        """Return one group's entities (..., slots_g, d_model) and mask (..., slots_g).

        Raises:
            ValueError: When there is no such group, with the nearest name.
        """
        part = self._slices[choose("group", name, self._slices)]
        return self.entities[..., part, :], self.mask[..., part]
