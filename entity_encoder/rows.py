"""Which row of a layout stands for what, between the groups and the transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from entity_encoder.layout import DenseLayout, Layout, PackedLayout

__all__ = ["embed_rows", "join_maps", "row_flags"]


def embed_rows(
    embeddings: nn.ModuleList,
    features: Sequence[Tensor],
    layout: Layout,
    slices: Sequence[slice],
    class_token: Tensor | None,
) -> Tensor:
    """Embed all groups into the rows of a layout: (R, D) or (B, N, D).

    Args:
        embeddings: One `GroupEmbedding` per group.
        features: (B, slots_g, F_g) per group.
        layout: Which slots have rows.
        slices: Where each group's slots lie among the N.
        class_token: (D,), whose slot is the last one; None: there is none.
    """
    if isinstance(layout, DenseLayout):
        parts = [embed(x) for embed, x in zip(embeddings, features, strict=True)]
        if class_token is not None:
            parts.append(class_token.expand(layout.n_sets, 1, -1))
        return torch.cat(parts, dim=1)
    if len(features) == 1 and class_token is None:
        rows = features[0].flatten(0, 1).index_select(0, layout.rows)
        return layout.pad(embeddings[0](rows))
    slot = layout.rows % layout.shape[1]
    parts, places = [], []
    for embed, x, part in zip(embeddings, features, slices, strict=True):
        place = torch.nonzero((slot >= part.start) & (slot < part.stop)).squeeze(1)
        source = layout.set_of_row[place] * x.shape[1] + slot[place] - part.start
        parts.append(embed(x.flatten(0, 1).index_select(0, source)))
        places.append(place)
    if class_token is not None:
        places.append(torch.nonzero(slot == layout.shape[1] - 1).squeeze(1))
        parts.append(class_token.expand(len(places[-1]), -1))
    return layout.pad(torch.cat(parts).index_select(0, torch.argsort(torch.cat(places))))


def row_flags(
    layout: Layout, mask: Tensor, ego: slice | None, *, class_token: bool
) -> Tensor | None:
    """Which row is the class token, or else the ego entity: (R,) or (B, N) bool.

    Args:
        layout: Which slots have rows.
        mask: (B, N) bool without the class token's slot.
        ego: Slots of the ego group.
        class_token: Whether a class token's slot follows.
    """
    wide = mask.shape[1] + class_token
    slot = torch.arange(wide, device=mask.device)
    if class_token:
        chosen = slot == wide - 1
    elif ego is not None:
        chosen = (slot >= ego.start) & (slot < ego.stop)
    else:
        return None
    if isinstance(layout, PackedLayout):
        return layout.pick_flags(chosen.expand(mask.shape[0], -1))
    return layout.pick_flags(chosen)


def join_maps(maps: list[Any], lead: tuple[int, ...]) -> Tensor:
    """Add the maps of all chunks, each zero outside its sets: (..., layers, H, N, N)."""
    layers = [torch.stack(chunk, dim=1) for chunk in maps if chunk]
    if not layers:
        raise ValueError("return_attention needs core='attention' with at least one layer")
    total = layers[0]
    for more in layers[1:]:
        total = total + more
    return total.reshape(*lead, *total.shape[1:])
