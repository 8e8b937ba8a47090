"""Action heads for Dict and Tuple spaces."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, cast

from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder.distributions import Composite, MaskedCategorical
from entity_encoder.encoding import EntityEncoding
from entity_encoder.heads.base import ActionHead

__all__ = ["CompositeHead"]


class CompositeHead(ActionHead):
    """Dict and Tuple: one head per part."""

    def __init__(
        self,
        space: spaces.Dict | spaces.Tuple,
        mask_key: str,
        parts: Mapping[Any, ActionHead],
        conditions: Mapping[Any, tuple[Any, Sequence[int]]],
    ) -> None:
        super().__init__(space, mask_key, masked=False)
        self.keys = list(parts)
        self.heads = nn.ModuleList(parts.values())
        self.conditions = dict(conditions)

    def mask_shapes(self, slots: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """Return the shapes of the masks of all parts."""
        parts = [head.mask_shapes(slots) for head in self._parts.values()]
        return {key: shape for part in parts for key, shape in part.items()}

    @property
    def _parts(self) -> dict[Any, ActionHead]:
        return dict(zip(self.keys, cast("list[ActionHead]", list(self.heads)), strict=True))

    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> Composite:
        """See `ActionHead.forward`."""
        parts: dict[Any, Any] = {}
        heads = self._parts
        for key in sorted(self.keys, key=lambda key: key in self.conditions):
            rows = active
            if key in self.conditions:  # a part that cannot matter needs no legal choice
                rows = _may_matter(parts[self.conditions[key][0]], self.conditions[key][1], active)
            parts[key] = heads[key](encoding, observation, active=rows, validate=validate)
        ordered = {key: parts[key] for key in self.keys}
        named = isinstance(self.space, spaces.Dict)
        return Composite(ordered if named else list(ordered.values()), self.conditions)


def _may_matter(
    decider: MaskedCategorical, choices: Sequence[int], active: Tensor | None
) -> Tensor | None:
    """Where the deciding part may legally take one of `choices`: (...) bool, None = everywhere."""
    if decider.mask is None:
        return active
    legal = (decider.mask[..., int(choice) - int(decider.start)] for choice in choices)
    possible = reduce(operator.or_, legal).expand(decider.shape)
    return possible if active is None else possible & active
