"""Beginning episodes: when, with slots in which order, and merged into a running batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from entity_encoder.envs.groups import Group
from entity_encoder.envs.rng import Rng

__all__ = ["fill_rows", "merge_rows", "read_autoreset_mode", "read_reset_mask", "shuffle_slots"]


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
    running: dict[str, Tensor],
    fresh: dict[str, Tensor],
    where: Tensor,
    owned: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Replace rows of a batch by new ones.

    Args:
        running: Tensors with leading dimension E.
        fresh: The new rows: all E of them with a mask, or only the chosen with indices.
        where: Mask (E,) bool, which needs no answer from a device; or indices (k,) int64.
        owned: A batch whose tensors nobody else looks at. Those that `running` shares with it are
            changed in place: large tensors that no step changes need no copy.

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
    owned = owned or {}
    storages = {value.untyped_storage().data_ptr() for value in running.values()}
    apart = len(storages) == len(running)  # writing to one tensor changes no other
    return {
        key: value.index_copy_(0, where, fresh[key])
        if apart and owned.get(key) is value
        else value.index_copy(0, where, fresh[key])
        for key, value in running.items()
    }


def fill_rows(tensor: Tensor, rows: Tensor, value: float | bool) -> Tensor:
    """Fill rows that are given by a mask, (E,) bool, or by indices, (k,) int64."""
    if rows.dtype == torch.bool:
        return tensor.masked_fill(rows, value)
    return tensor.index_fill(0, rows, value)


def read_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Accept gymnasium's enum, its values ("NextStep") and its names ("NEXT_STEP").

    Raises:
        ValueError: For anything else.
    """
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    names = [known.name for known in AutoresetMode]
    raise ValueError(f"autoreset_mode must be one of {names}, got {mode!r}")


def read_reset_mask(
    options: dict[str, Any] | None, num_envs: int, device: torch.device
) -> Tensor | None:
    """Read which environments `reset` is about: a bool mask (E,), or None for all.

    Raises:
        ValueError: For other options, and for a mask of another shape, type or without a True.
    """
    unknown = sorted(set(options or ()) - {"reset_mask"})
    if unknown:
        raise ValueError(f"options must hold nothing but 'reset_mask', got {unknown}")
    if not options:
        return None
    mask = torch.as_tensor(options["reset_mask"]).to(device)
    if mask.dtype != torch.bool or mask.shape != (num_envs,):
        raise ValueError(
            f"options['reset_mask'] must be bool of shape ({num_envs},), got "
            f"{mask.dtype} of shape {tuple(mask.shape)}"
        )
    if device.type == "cpu" and not bool(mask.any()):
        raise ValueError("options['reset_mask'] must be True somewhere, got all False")
    return mask
