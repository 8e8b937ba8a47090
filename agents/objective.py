"""What PPO minimises, as sums over samples, so that parts of a minibatch add up to the whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entity_encoder.agents.advantages import moments, normalise_advantages
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.losses import approx_kl, clip_fraction, clipped_surrogate, value_loss
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.rollout import Batch
from entity_encoder.agents.trees import map_tree, select

__all__ = ["SUMS", "Coefficients", "Objective", "rows_of", "units_of"]

#: The sums that the objective returns, in this order.
SUMS = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clip_fraction")


@dataclass(frozen=True)
class Coefficients:
    """What the schedules say for one update; tensors where a CUDA graph reads them."""

    learning_rate: float
    clip_range: Any
    entropy: Any


def units_of(batch: Batch, *, masked: bool) -> Tensor:
    """Return what is shuffled: rows, or environments when their steps belong together.

    Args:
        batch: The rollout.
        masked: Whether rows that are not valid are masked later, instead of left out here.
    """
    if batch.recurrent:
        return torch.arange(batch.shape[1], device=batch.value.device)
    if masked:
        return torch.arange(len(batch.value), device=batch.value.device)
    return batch.valid.nonzero().flatten()


def rows_of(batch: Batch, units: Tensor) -> Tensor:
    """Return the rows of the batch that units stand for, time by time: (n,) or (T * k,)."""
    if not batch.recurrent:
        return units
    steps, num_envs = batch.shape
    time = torch.arange(steps, device=units.device)[:, None] * num_envs
    return (time + units).flatten()


class Objective:
    """Evaluate the loss of some units of a batch.

    Args:
        policy: The policy that learns.
        config: Settings; those of the loss are read.
        masked: Whether rows that are not valid may be among the units, and are masked. Sequences
            of a recurrent policy always may.
        precision: Returns the context in which the policy computes.
    """

    def __init__(
        self,
        policy: EntityPolicy,
        config: PPOConfig,
        *,
        masked: bool = False,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.policy = policy
        self.config = config
        self.masked = masked
        self.precision = precision

    def moments(self, batch: Batch, units: Tensor) -> Tensor:
        """Return count, sum and sum of squares of the units' valid advantages, (3,) float64."""
        rows = rows_of(batch, units)
        keep = batch.valid.index_select(0, rows) if self._masks(batch) else None
        return moments(batch.advantage.index_select(0, rows), keep)

    def __call__(
        self, batch: Batch, units: Tensor, total: Tensor, coefficients: Coefficients
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Evaluate some units.

        Args:
            batch: The rollout.
            units: Part of a minibatch, or all of it.
            total: Moments of the advantages of the whole minibatch.
            coefficients: In force.

        Returns:
            Loss (), the sums in the order of `SUMS` (5,), largest |log ratio| ().
        """
        rows = rows_of(batch, units)
        valid = batch.valid.index_select(0, rows) if self._masks(batch) else None

        def pick(x: Tensor) -> Tensor:
            x = x.index_select(0, rows)
            return x if valid is None else torch.where(valid, x, 0.0)

        advantage = pick(batch.advantage)
        if self.config.normalise_advantages:
            advantage = normalise_advantages(advantage, total)
        log_prob, entropy, value = self._evaluate(batch, units, rows)
        log_ratio = log_prob - pick(batch.log_prob)
        clip, value_clip = coefficients.clip_range, self.config.value_clip_range
        terms = [
            clipped_surrogate(log_ratio, advantage, clip),
            value_loss(value, pick(batch.value), pick(batch.target), value_clip),
            entropy,
            approx_kl(log_ratio.detach()),
            clip_fraction(log_ratio.detach(), clip),
        ]
        if valid is not None:
            terms = [torch.where(valid, term, 0.0) for term in terms]
            log_ratio = torch.where(valid, log_ratio, 0.0)
        sums = torch.stack([term.sum() for term in terms])
        return self.weigh(sums, coefficients), sums.detach(), log_ratio.detach().abs().max()

    def weigh(self, sums: Tensor, coefficients: Coefficients) -> Tensor:
        """Return policy + c_v value - c_e entropy of sums or means."""
        return sums[0] + self.config.value_coefficient * sums[1] - coefficients.entropy * sums[2]

    def _masks(self, batch: Batch) -> bool:
        return self.masked or batch.recurrent

    def _evaluate(self, batch: Batch, units: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probability, entropy and value of each row, (n,), from one pass."""
        observation, action = select(batch.observation, rows), select(batch.action, rows)
        inputs: dict[str, Any] = {}
        if self._masks(batch):
            inputs["active"] = batch.valid.index_select(0, rows)
        if batch.recurrent:
            lead = (batch.shape[0], len(units))  # (T, k)
            assert batch.state is not None
            inputs["state"] = batch.state.index_select(0, units)
            inputs["begins"] = batch.begins.index_select(0, rows).view(lead)
            inputs["active"] = inputs["active"].view(lead)
            observation, action = (
                map_tree(lambda x: x.unflatten(0, lead), tree) for tree in (observation, action)
            )
        with self.precision():
            output = self.policy(observation, **inputs)
        distribution = output.distribution
        log_prob, entropy = distribution.log_prob(action), distribution.entropy()
        return log_prob.flatten(), entropy.flatten(), output.value.flatten()
