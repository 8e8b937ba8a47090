"""The boundary: an observation dict in, checked tensors with boolean masks out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entity_encoder.errors import nearest
from entity_encoder.schema import EntityGroup, EntitySchema

__all__ = ["EntityTensors", "as_mask", "as_tensor", "read_observation"]

# Finite but absurd numbers, as a space without bounds samples them, stay finite in every layer.
_LARGEST = {torch.float16: 1e4}
_LARGEST_ELSEWHERE = 1e15


@dataclass
class EntityTensors:
    """One observation batch with its leading dimensions flattened to B.

    Attributes:
        features: One (B, slots_g, F_g) tensor per group, as delivered: absent rows hold anything.
        masks: One (B, slots_g) bool tensor per group, True = an entity is there.
        globals: One (B, k) tensor per global feature.
        lead: The leading dimensions that were flattened.
    """

    features: list[Tensor]
    masks: list[Tensor]
    globals: list[Tensor]
    lead: tuple[int, ...]

    @property
    def mask(self) -> Tensor:
        """The masks of all groups side by side, (B, N)."""
        return self.masks[0] if len(self.masks) == 1 else torch.cat(self.masks, dim=1)

    @property
    def slices(self) -> list[slice]:
        """Where each group's slots lie among the N concatenated ones."""
        ends = np.cumsum([mask.shape[1] for mask in self.masks]).tolist()
        return [slice(end - mask.shape[1], end) for end, mask in zip(ends, self.masks, strict=True)]


def as_tensor(value: Any, device: torch.device | None = None) -> Tensor:
    """Make a tensor of an array, also of one that is read-only or runs backwards."""
    if isinstance(value, np.ndarray) and (
        not value.flags.writeable or any(step < 0 for step in value.strides)
    ):
        value = value.copy()
    return torch.as_tensor(value, device=device)


def as_mask(mask: Any, *, key: str = "mask", check: bool = True) -> Tensor:
    """Convert a mask of any accepted dtype to bool.

    Args:
        mask: Tensor or array of bool, integer or float dtype that holds exactly 0 and 1.
        key: Name used in errors.
        check: Whether to look at the values. Skip it where that would synchronise a device.

    Raises:
        ValueError: For any other value, naming its place.
    """
    mask = as_tensor(mask)
    if mask.dtype == torch.bool:
        return mask
    present = mask == 1
    if check and not bool((present | (mask == 0)).all()):
        where = torch.nonzero(~(present | (mask == 0)))[0].tolist()
        raise ValueError(
            f"mask {key!r} must hold exactly 0 and 1, got {mask[tuple(where)].item()} at index "
            f"{where}; a normalising wrapper must leave masks alone"
        )
    return present


def read_observation(
    schema: EntitySchema,
    observation: Mapping[str, Any],
    *,
    check: bool | None = None,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> EntityTensors:
    """Flatten leading dimensions, convert masks, and check what a present entity holds.

    Args:
        schema: What the observation must contain.
        observation: Tensors or arrays by key; further keys are ignored.
        check: Whether to look at values; None means on the CPU only, since elsewhere it would
            wait for the device.
        device: Where the tensors shall be.
        dtype: Floating-point type of features. Values beyond 1e15 (1e4 in float16) are clipped.

    Raises:
        ValueError: Naming the environment, key and slot of what does not fit.
    """
    lead: tuple[int, ...] | None = None
    features: list[Tensor] = []
    masks: list[Tensor] = []
    for group in schema.groups:
        table = _tensor(observation, group.name, device)
        width = len(group.features)
        if table.dim() < 2 or table.shape[-1] != width:
            raise ValueError(
                f"{group.name!r} must have shape (..., slots, {width}), got {tuple(table.shape)}"
            )
        lead = _same_lead(lead, tuple(table.shape[:-2]), group.name)
        look = table.device.type == "cpu" if check is None else check
        mask = _read_mask(group, observation, table, look, device)
        table = table.reshape(math.prod(lead), *table.shape[-2:])
        mask = mask.reshape(math.prod(lead), table.shape[1])
        if look:
            _check_finite(group, table, mask, lead)
        features.append(_bounded(table, dtype))
        masks.append(mask)
    assert lead is not None
    vectors = [
        _read_global(observation, item.name, item.size, lead, device, dtype, check)
        for item in schema.globals
    ]
    return EntityTensors(features, masks, vectors, lead)


def _tensor(observation: Mapping[str, Any], key: str, device: torch.device | None) -> Tensor:
    if key not in observation:
        keys = list(observation)
        raise ValueError(f"observation must hold key {key!r}, got {keys}{nearest(key, keys)}")
    return as_tensor(observation[key], device)


def _bounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    limit = _LARGEST.get(dtype, _LARGEST_ELSEWHERE)
    return x.to(dtype).clamp(-limit, limit)


def _same_lead(lead: tuple[int, ...] | None, got: tuple[int, ...], key: str) -> tuple[int, ...]:
    if lead is not None and got != lead:
        raise ValueError(
            f"leading dimensions must be the same for every key, got {got} for {key!r} after {lead}"
        )
    return got


def _read_mask(
    group: EntityGroup,
    observation: Mapping[str, Any],
    table: Tensor,
    look: bool,
    device: torch.device | None,
) -> Tensor:
    if group.mask_key is None:
        assert group.presence is not None
        column = table[..., group.features.index(group.presence)]
        if look and bool(torch.isnan(column).any()):
            where = torch.nonzero(torch.isnan(column))[0].tolist()
            raise ValueError(
                f"presence column {group.presence!r} of {group.name!r} must be a number, got nan "
                f"at index {where}"
            )
        return column > 0.5
    mask = _tensor(observation, group.mask_key, device)
    expected = tuple(table.shape[:-1])
    if tuple(mask.shape) == (*expected, 1):
        mask = mask.squeeze(-1)
    if tuple(mask.shape) != expected:
        raise ValueError(
            f"mask {group.mask_key!r} must have shape {expected} like the slots of "
            f"{group.name!r}, got {tuple(mask.shape)}"
        )
    return as_mask(mask, key=group.mask_key, check=look)


def _place(index: int, lead: tuple[int, ...]) -> str:
    """Name the environment a flat index stands for."""
    if not lead:
        return "the single environment"
    place = np.unravel_index(index, lead)
    return f"environment {place[-1]}" + (f" (index {tuple(map(int, place))})" if place[1:] else "")


def _check_finite(group: EntityGroup, table: Tensor, mask: Tensor, lead: tuple[int, ...]) -> None:
    if not table.numel():
        return
    # One sum decides the common case; it can also overflow, which the second look clears.
    if not math.isfinite(float(torch.where(mask[..., None], table.detach(), 0.0).sum())):
        bad = ~torch.isfinite(table).all(-1) & mask
        _refuse_non_finite(group, table, bad, lead)
    for name, count in group.categories:
        column = group.features.index(name)
        ids = table[..., column]
        bad = mask & ~((ids >= 0) & (ids < count) & (ids == ids.floor()))
        if bool(bad.any()):
            env, slot = torch.nonzero(bad)[0].tolist()
            raise ValueError(
                f"category {name!r} must be an integer in [0, {count}), got "
                f"{ids[env, slot].item():g} in {_place(env, lead)}, key {group.name!r}, slot {slot}"
            )


def _refuse_non_finite(
    group: EntityGroup, table: Tensor, bad: Tensor, lead: tuple[int, ...]
) -> None:
    """Name the first present entity that is not finite, if there is one."""
    if not bool(bad.any()):
        return
    env, slot = torch.nonzero(bad)[0].tolist()
    row = table[env, slot]
    column = int(torch.nonzero(~torch.isfinite(row))[0])
    raise ValueError(
        f"present entities must be finite, got {row[column].item()} in {_place(env, lead)}, "
        f"key {group.name!r}, slot {slot}, feature {group.features[column]!r}"
    )


def _read_global(
    observation: Mapping[str, Any],
    name: str,
    size: int,
    lead: tuple[int, ...],
    device: torch.device | None,
    dtype: torch.dtype,
    check: bool | None,
) -> Tensor:
    vector = _tensor(observation, name, device)
    if tuple(vector.shape) != (*lead, size):
        raise ValueError(
            f"global feature {name!r} must have shape {(*lead, size)}, got {tuple(vector.shape)}"
        )
    vector = vector.reshape(math.prod(lead), size)
    look = vector.device.type == "cpu" if check is None else check
    if look and not bool(torch.isfinite(vector).all()):
        env, column = torch.nonzero(~torch.isfinite(vector))[0].tolist()
        raise ValueError(
            f"global features must be finite, got {vector[env, column].item()} in "
            f"{_place(env, lead)}, key {name!r}, column {column}"
        )
    return _bounded(vector, dtype)
