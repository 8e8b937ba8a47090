"""Our distributions in terms of `torch.distributions`, for libraries that build them anew."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal

from entity_encoder.distributions import (
    ActionDistribution,
    DiagonalGaussian,
    MaskedCategorical,
    MaskedMultiCategorical,
)

__all__ = ["Categoricals", "Normals", "distribution_class", "parameters"]


class Categoricals(Independent):
    """Several choices with one log-probability, the sum over them.

    Args:
        logits: (..., M, K).
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__(Categorical(logits=logits), 1)


class Normals(Independent):
    """Several numbers with one log-probability, the sum over them.

    Args:
        loc: (..., M), means.
        scale: (..., M), standard deviations.
    """

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__(Normal(loc, scale), 1)


def distribution_class(space: spaces.Space[Any]) -> tuple[list[str], type[Distribution]]:
    """Return the arguments' names and the class of distributions over actions of a space.

    Raises:
        ValueError: For a space that these classes cannot serve.
    """
    if isinstance(space, spaces.Box):
        if len(space.shape) != 1:
            raise ValueError(f"a Box of actions must have one axis, got shape {space.shape}")
        return ["loc", "scale"], Normals
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        if bool((torch.as_tensor(space.start) != 0).any()):
            raise ValueError(f"actions must be counted from 0, got {space}")
        return ["logits"], Categorical if isinstance(space, spaces.Discrete) else Categoricals
    raise ValueError(
        f"action space must be Discrete, MultiDiscrete, Box, SelectEntity or PerEntity, got {space}"
    )


def parameters(distribution: ActionDistribution) -> tuple[Tensor, ...]:
    """Return the arguments from which that class rebuilds a distribution.

    Illegal choices have a logit of minus infinity. Who is absent takes the first choice for
    certain: probability 1, entropy 0, no gradient.
    """
    if isinstance(distribution, DiagonalGaussian):
        return distribution.mean, distribution.std
    if isinstance(distribution, MaskedMultiCategorical):
        return (_logits(distribution.each),)
    assert isinstance(distribution, MaskedCategorical)
    return (_logits(distribution),)


def _logits(distribution: MaskedCategorical) -> Tensor:
    log_probs = distribution.log_probs
    if distribution.active is None:
        return log_probs
    idle = torch.full_like(log_probs, -torch.inf)
    idle[..., 0] = 0.0
    return torch.where(distribution.active[..., None], log_probs, idle)
