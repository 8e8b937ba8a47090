"""What every action distribution offers, and what their constructors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from entity_encoder.observation import as_mask
from entity_encoder.pinning import is_capturing

__all__ = [
    "ActionDistribution",
    "check_shape",
    "full_precision",
    "name_place",
    "read_mask",
    "values_at_hand",
]


class ActionDistribution(Protocol):
    """A batch of distributions over actions of one space.

    Actions are tensors shaped like the space with the batch's leading dimensions in front; for
    `Composite` they are dicts or tuples of such. Log-probabilities and entropies have the leading
    dimensions only: they are summed over everything chosen together.
    """

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Draw one action per row, without a gradient."""

    def mode(self) -> Any:
        """Return the deterministic action of each row."""

    def log_prob(self, action: Any) -> Tensor:
        """Return log p(action), shape (...)."""

    def entropy(self) -> Tensor:
        """Return the entropy, shape (...)."""

    def to_env(self, action: Any) -> Any:
        """Turn a sampled action into the one the environment shall receive."""


def full_precision(x: Tensor) -> Tensor:
    """Return half-precision numbers in fp32: sums of exponentials need the digits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def values_at_hand(x: Tensor) -> bool:
    """Whether looking at the values of `x` waits for no device and breaks no capture."""
    return x.device.type == "cpu" and not is_capturing()


def read_mask(mask: Tensor, shape: torch.Size, *, name: str, look: bool) -> Tensor:
    """Convert a mask to bool and check that it covers `shape`.

    Args:
        mask: Any dtype that holds exactly 0 and 1, broadcastable to `shape`.
        shape: Shape of what is masked.
        name: Name used in errors.
        look: Whether values may be checked.

    Raises:
        ValueError: When the shape does not fit or values are not 0 and 1.
    """
    sizes = list(zip(reversed(mask.shape), reversed(shape), strict=False))
    last = shape[-1:] == mask.shape[-1:]  # an axis of choices is never stretched
    if len(mask.shape) > len(shape) or not last or any(m not in (1, s) for m, s in sizes):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(mask.shape)}")
    return as_mask(mask, key=name, check=look)


def check_shape(action: Tensor, shape: torch.Size) -> None:
    """Refuse actions that would broadcast into a matrix of log-probabilities.

    Raises:
        ValueError: Naming both shapes.
    """
    if action.shape != shape:
        raise ValueError(f"action must have shape {tuple(shape)}, got {tuple(action.shape)}")


def name_place(index: Sequence[int], axes: Sequence[str]) -> str:
    """Say where an index points: `axes` name its last places, earlier ones are counted."""
    names = ["index"] * (len(index) - len(axes)) + list(axes)[max(len(axes) - len(index), 0) :]
    place = [f"{name} {i}" for name, i in zip(names, index, strict=True)]
    return ", ".join(place) or f"the only {axes[0]}"
