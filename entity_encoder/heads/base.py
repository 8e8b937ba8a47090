"""What all action heads have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder.distributions import ActionDistribution
from entity_encoder.encoding import EntityEncoding

__all__ = ["ActionHead"]


class ActionHead(nn.Module, ABC):
    """What all action heads have in common: a space, and the key its mask has in observations.

    Args:
        space: The action space (or the part of it) that the head serves.
        mask_key: Key of the mask of legal actions in the observation.
        masked: Whether the mask must be there; otherwise it is used where it is.
    """

    def __init__(self, space: spaces.Space[Any], mask_key: str, masked: bool) -> None:
        super().__init__()
        self.space = space
        self.mask_key = mask_key
        self.masked = masked

    def mask_shapes(self, slots: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """Return the shape, without leading dimensions, of every mask the head reads.

        Args:
            slots: Number of slots per group, which need not be the space's; whatever can be added
                to an integer.
        """
        return {self.mask_key: self._mask_shape(slots)}

    def _mask_shape(self, slots: Mapping[str, Any]) -> tuple[Any, ...]:
        assert self.space.shape is not None
        return self.space.shape

    @abstractmethod
    def forward(
        self,
        encoding: EntityEncoding,
        observation: Mapping[str, Any],
        *,
        active: Tensor | None = None,
        validate: bool = True,
    ) -> ActionDistribution:
        """Return the distribution over actions of the head's space.

        Args:
            encoding: The encoder's result for `observation`.
            observation: Dict of tensors or arrays that holds the action masks.
            active: (...) bool, which rows act; others contribute nothing and need no legal
                action, as for an environment that is being reset. None: all rows.
            validate: Whether to look for rows without a legal action (on the CPU); otherwise they
                count as not active. Off where the same masks were looked at before.

        Raises:
            ValueError: When a row that acts has no legal action, naming environment and slot;
                when a mask is missing or does not fit.
        """

    def legal(self, observation: Mapping[str, Any], like: Tensor) -> Tensor | None:
        """Return the mask of legal actions on the device of `like`, or None."""
        if self.mask_key not in observation:
            if self.masked:
                raise ValueError(
                    f"observation must hold the action mask {self.mask_key!r}, got "
                    f"{list(observation)}; store it with the transition"
                )
            return None
        return torch.as_tensor(observation[self.mask_key], device=like.device)

    @property
    def mask_name(self) -> str:
        """What errors call the mask."""
        return f"action mask {self.mask_key!r}"
