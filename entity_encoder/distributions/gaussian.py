"""Real-valued actions: independent normal distributions, clipped or squashed into bounds."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from entity_encoder.distributions.protocol import (
    check_shape,
    full_precision,
    read_mask,
    values_at_hand,
)

__all__ = ["DiagonalGaussian"]

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class DiagonalGaussian:
    """Independent normal components; the raw sample is what learning stores.

    `to_env` turns a raw action into the one the environment receives: clipped into the bounds, or
    with `squash` mapped into them by tanh. Log-probabilities are always asked for raw actions, so
    clipping never makes the ratio of PPO wrong, and squashing needs no inverse of tanh.

    Args:
        mean: (..., *event).
        log_std: Logarithm of the standard deviations, broadcastable to `mean`.
        active: (...), True = the row acts. Others: action 0, log-probability and entropy 0.
        mask: (..., *event), True = the component is used. Others contribute nothing and are 0.
        low: Lower bounds, broadcastable to an action; None: unbounded.
        high: Upper bounds.
        squash: Whether `to_env` maps into the bounds by tanh; then log-probability and entropy
            are those of the squashed action.
        event_dims: Number of trailing axes that form one action.
        validate: Whether to check that the mask holds zeros and ones (on CPU).
        name: What the mask is called in errors.

    Raises:
        ValueError: When `squash` is asked for without both bounds.
    """

    def __init__(
        self,
        mean: Tensor,
        log_std: Tensor,
        active: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        low: Tensor | None = None,
        high: Tensor | None = None,
        squash: bool = False,
        event_dims: int = 1,
        validate: bool = True,
        name: str = "action mask",
    ) -> None:
        if squash and (low is None or high is None):
            raise ValueError("squash must come with both bounds, got low or high None")
        self.log_std = full_precision(log_std).expand_as(mean)
        self.low, self.high, self.squash = low, high, squash
        self.shape = mean.shape[: mean.dim() - event_dims]
        self._axes = tuple(range(-event_dims, 0))
        look = validate and values_at_hand(mean)
        self.mask = None if mask is None else read_mask(mask, mean.shape, name=name, look=look)
        if active is not None:
            active = read_mask(active, self.shape, name=f"active rows of the {name}", look=look)
            rows = active.reshape(active.shape + (1,) * event_dims)
            self.mask = rows if self.mask is None else self.mask & rows
        self.mean = self._used(full_precision(mean))

    def _used(self, values: Tensor) -> Tensor:
        return values if self.mask is None else torch.where(self.mask, values, 0.0)

    @property
    def std(self) -> Tensor:
        """Standard deviations before squashing, (..., *event)."""
        return self.log_std.exp()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw a raw action: (..., *event)."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self._used(self.mean.detach() + self.std.detach() * noise)

    def mode(self) -> Tensor:
        """Return the mean, as a raw action without a gradient: (..., *event)."""
        return self.mean.detach()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-density of a raw action, summed over components: (...)."""
        check_shape(action, self.mean.shape)
        action = self._used(action.to(self.mean.dtype))
        z = (action - self.mean) * (-self.log_std).exp()
        log_p = -0.5 * z.square() - self.log_std - HALF_LOG_2PI
        if self.squash:
            log_p = log_p - self._log_slope(action)
        return self._used(log_p).sum(self._axes)

    def entropy(self) -> Tensor:
        """Return the entropy, summed over components: (...)."""
        entropy = self.log_std + 0.5 + HALF_LOG_2PI
        if self.squash:
            # H(f(u)) = H(u) + E[log f'(u)], the expectation by Gauss-Hermite quadrature.
            nodes, weights = _hermite(self.mean.dtype, self.mean.device)
            points = self.mean[..., None] + self.std[..., None] * nodes  # (..., *event, nodes)
            slope = (_log_one_minus_tanh2(points) * weights).sum(-1)
            entropy = entropy + slope + self._log_half_width()
        return self._used(entropy).sum(self._axes)

    def _log_half_width(self) -> Tensor:
        assert self.low is not None
        assert self.high is not None
        return ((self.high - self.low) / 2).log()

    def _log_slope(self, raw: Tensor) -> Tensor:
        """Return log d(action)/d(raw) of the squashing."""
        return _log_one_minus_tanh2(raw) + self._log_half_width()

    def to_env(self, action: Tensor) -> Tensor:
        """Clip or squash a raw action into the bounds: (..., *event)."""
        if self.squash:
            assert self.low is not None
            assert self.high is not None
            action = self.low + (self.high - self.low) * (action.tanh() + 1) / 2
        if self.low is not None or self.high is not None:
            action = action.clamp(self.low, self.high)
        return action


def _log_one_minus_tanh2(u: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2) without cancellation for large u."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


@lru_cache
def _hermite(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of E[f(z)], z standard normal: sum_i w_i f(z_i)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    parts = (nodes, weights / np.sqrt(2 * np.pi))
    values, shares = (torch.as_tensor(part, dtype=dtype, device=device) for part in parts)
    return values, shares
