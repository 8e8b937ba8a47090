"""Action heads for the spaces that mean entities: pointing, and every entity choosing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from entity_encoder.distributions import MaskedCategorical, MaskedMultiCategorical
from entity_encoder.distributions.protocol import read_mask, values_at_hand
from entity_encoder.encoding import EntityEncoding
from entity_encoder.heads.base import ActionHead
from entity_encoder.heads.scores import PerEntityHead, PointerHead, point_pairs
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["PerEntityActionHead", "SelectEntityHead"]


class SelectEntityHead(ActionHead):
    """SelectEntity: the pooled vector points at the group's entities; mask of shape (slots,)."""

    def __init__(
        self,
        space: SelectEntity,
        mask_key: str,
        masked: bool,
        width: int,
        hidden: Sequence[int],
        *,
        d_model: int,
    ) -> None:
        super().__init__(space, mask_key, masked)
        self.group = space.group
        self.pointer = PointerHead(width, d_model, hidden=hidden)

    def _mask_shape(self, slots: Mapping[str, Any]) -> tuple[Any, ...]:
        return (slots[self.group],)

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> MaskedCategorical:
        """See `ActionHead.forward`."""
        entities, present = encoding.group(self.group)
        logits = self.pointer(encoding.pooled, entities)
        legal = self.legal(observation, logits)
        if legal is not None:
            look = validate and values_at_hand(legal)
            present = present & read_mask(legal, present.shape, name=self.mask_name, look=look)
        return MaskedCategorical(
            logits,
            present,
            active,
            validate=validate,
            name=f"presence of {self.group!r} and {self.mask_name}",
            axes=("environment",),
        )


class PerEntityActionHead(ActionHead):
    """PerEntity: every entity of the group chooses; mask of shape (slots, choices).

    Choices beyond the first n point at the target group's entities, with a query of the actor's
    own; absent targets are illegal, absent actors inactive.
    """

    def __init__(
        self,
        space: PerEntity,
        mask_key: str,
        masked: bool,
        width: int,
        hidden: Sequence[int],
        *,
        d_model: int,
    ) -> None:
        super().__init__(space, mask_key, masked)
        self.group = space.group
        self.target = space.target
        self.n = space.n
        self.scale = 1 / math.sqrt(d_model)
        self.scores = PerEntityHead(d_model, width, space.n, hidden=hidden) if space.n else None
        self.query = (
            None if self.target is None else PerEntityHead(d_model, width, d_model, hidden=hidden)
        )

    def _mask_shape(self, slots: Mapping[str, Any]) -> tuple[Any, ...]:
        if self.target is None:
            return slots[self.group], self.n
        return slots[self.group], slots[self.target] + self.n if self.n else slots[self.target]

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> MaskedMultiCategorical:
        """See `ActionHead.forward`."""
        actors, present = encoding.group(self.group)
        logits, legal = self._choices(actors, encoding)
        name = self.mask_name
        if self.target is not None:
            name = f"presence of {self.target!r} and {name}"
        mask = self.legal(observation, logits)
        if mask is not None:
            mask = read_mask(
                mask, logits.shape, name=self.mask_name, look=validate and values_at_hand(mask)
            )
            legal = mask if legal is None else mask & legal
        return MaskedMultiCategorical(
            logits,
            legal,
            present if active is None else present & active[..., None],
            validate=validate,
            name=name,
            axes=("environment", "slot"),
        )

    def _choices(self, actors: Tensor, encoding: EntityEncoding) -> tuple[Tensor, Tensor | None]:
        """Return scores (..., slots, choices) and which choices the presence of targets allows."""
        own = None if self.scores is None else self.scores(actors, encoding.pooled)
        if self.query is None or self.target is None:
            assert own is not None
            return own, None
        targets, there = encoding.group(self.target)
        queries = self.query(actors, encoding.pooled) * self.scale  # (..., A, D)
        aimed = point_pairs(queries, targets)  # (..., A, T)
        there = there[..., None, :].expand(aimed.shape)
        if own is None:
            return aimed, there
        legal = torch.cat([torch.ones_like(own, dtype=torch.bool), there], dim=-1)
        return torch.cat([own, aimed], dim=-1), legal
