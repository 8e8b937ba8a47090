"""Turn what an environment returns into the tensors that training stores, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.errors import nearest
from entity_encoder.observation import EntityTensors, as_mask, read_observation
from entity_encoder.schema import EntitySchema

__all__ = ["ObservationReader"]

TOLERANCE = 1e-4  # how far beyond a bound rounding may carry a value, relative to the bound


class ObservationReader:
    """Read batched observations: only the keys that a policy needs, masks as bool.

    What is on a CPU is checked here, before it is learned from or sent to a device, so nothing
    has to look at values again: present entities are finite and inside their space, masks hold 0
    and 1, shapes and types are those of the space.

    Args:
        space: Observation space of one environment.
        schema: What the encoder reads.
        device: Where the tensors shall be.
    """

    def __init__(self, space: spaces.Dict, schema: EntitySchema, device: torch.device) -> None:
        self.schema = schema
        self.device = device
        masks = [group.mask_key for group in schema.groups if group.mask_key is not None]
        self.mask_keys = {*masks, *schema.action_masks}
        self.keys = [group.name for group in schema.groups]
        self.keys += masks + [item.name for item in schema.globals] + list(schema.action_masks)
        self._bounds = {key: _bounds(space[key]) for key in self.keys if key in space.spaces}
        self._dtypes = {key: space[key].dtype for key in self.keys if key in space.spaces}
        self._pin = device.type == "cuda"

    def read(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Convert a batch: leaves (E, ...), on the device.

        Raises:
            ValueError: Naming environment, key and slot of what does not fit.
        """
        tensors = {key: self._tensor(key, observation) for key in self.keys}
        if next(iter(tensors.values())).device.type == "cpu":
            entities = read_observation(self.schema, tensors, check=True)
            self._check_bounds(entities)
        return {key: self._send(value) for key, value in tensors.items()}

    def _tensor(self, key: str, observation: Mapping[str, Any]) -> Tensor:
        if key not in observation:
            keys = list(observation)
            raise ValueError(f"observation must hold key {key!r}, got {keys}{nearest(key, keys)}")
        value = observation[key]
        if key in self.mask_keys:
            mask = torch.as_tensor(value)
            return as_mask(mask, key=key, check=mask.device.type == "cpu")
        expected = self._dtypes.get(key)
        if isinstance(value, np.ndarray) and expected not in (None, value.dtype):
            raise ValueError(
                f"observation {key!r} must have the dtype of its space, {expected}, got "
                f"{value.dtype}; cast it in the environment, or declare what it returns"
            )
        return torch.as_tensor(value).to(torch.float32)

    def _send(self, value: Tensor) -> Tensor:
        if self._pin and value.device.type == "cpu":
            return value.pin_memory().to(self.device, non_blocking=True)
        return value.to(self.device)

    def _check_bounds(self, entities: EntityTensors) -> None:
        for group, x, mask in zip(
            self.schema.groups, entities.features, entities.masks, strict=True
        ):
            self._check_inside(group.name, x, mask[..., None])
        for item, x in zip(self.schema.globals, entities.globals, strict=True):
            self._check_inside(item.name, x, None)

    def _check_inside(self, key: str, x: Tensor, mask: Tensor | None) -> None:
        bounds = self._bounds.get(key)
        if bounds is None or not x.numel():
            return
        low, high = bounds
        outside = (x < low) | (x > high)
        if mask is not None:
            outside = outside & mask
        if bool(outside.any()):
            env, *place = outside.nonzero()[0].tolist()
            slot = f"slot {place[0]}, " if mask is not None else ""
            where = f"{slot}column {place[-1]}"
            bound = f"[{float(low[tuple(place)]):g}, {float(high[tuple(place)]):g}]"
            raise ValueError(
                f"observation must lie in its space, {bound} in key {key!r}, {where}, got "
                f"{float(x[(env, *place)]):g} in environment {env}"
            )


def _bounds(space: spaces.Space[Any]) -> tuple[Tensor, Tensor] | None:
    """Return the bounds of a Box, a little widened; None where there are none to check."""
    if not isinstance(space, spaces.Box) or not (
        np.isfinite(space.low).any() or np.isfinite(space.high).any()
    ):
        return None
    low = torch.as_tensor(space.low.astype(np.float32))
    high = torch.as_tensor(space.high.astype(np.float32))
    return low - TOLERANCE * (1 + low.abs()), high + TOLERANCE * (1 + high.abs())
