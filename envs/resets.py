"""Beginning episodes: slots in random order, and fresh rows merged into a running batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entity_encoder.envs.groups import Group
from entity_encoder.envs.rng import Rng

__all__ = ["merge_rows", "shuffle_slots"]


def shuffle_slots(state: dict[str, Tensor], groups: Sequence[Group], rng: Rng) -> dict[str, Tensor]:
    """Bring the slots of each group into a random order, empty ones included.

    All state tensors that a group names are permuted alike, once per episode; so a slot keeps its
    meaning, and `SelectEntity` its target, until the episode ends.
    """
    state = dict(state)
    for group in groups:
        if group.slots == 1 or not group.state:
            continue
        order = rng.permutation(group.slots)  # (E, slots)
        for name in group.state:
            value = state[name]  # (E, slots, ...)
            index = order.view(*order.shape, *[1] * (value.dim() - 2)).expand(value.shape)
            state[name] = value.gather(1, index)
    return state


def merge_rows(
    running: dict[str, Tensor], fresh: dict[str, Tensor], where: Tensor
) -> dict[str, Tensor]:
    """Replace rows of a batch by new ones.

    Args:
        running: Tensors with leading dimension E.
        fresh: The new rows: all E of them with a mask, or only the chosen with indices.
        where: Mask (E,) bool, which needs no answer from a device; or indices (k,) int64.

    Raises:
        ValueError: When the two do not hold the same tensors.
    """
    if running.keys() != fresh.keys():
        raise ValueError(
            f"initial must make the tensors that transition returns, got {sorted(fresh)} and "
            f"{sorted(running)}"
        )
    if where.dtype == torch.bool:
        return {
            key: torch.where(where.view(-1, *[1] * (value.dim() - 1)), fresh[key], value)
            for key, value in running.items()
        }
    return {key: value.index_copy(0, where, fresh[key]) for key, value in running.items()}
