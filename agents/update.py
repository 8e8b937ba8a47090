"""One update: several passes over a rollout in shuffled minibatches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entity_encoder.agents.accumulation import ChunkRunner, Gradient, Piece
from entity_encoder.agents.advantages import moments, normalise_advantages
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.distributed import Ranks
from entity_encoder.agents.losses import (
    approx_kl,
    clip_fraction,
    clipped_surrogate,
    value_loss,
)
from entity_encoder.agents.minibatches import chunks_by_size, minibatch_count, shuffled
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.rollout import Batch
from entity_encoder.agents.trees import map_tree, select

__all__ = ["Coefficients", "NonFiniteError", "Updater", "rows_of", "trusted", "units_of"]

# The sums that a minibatch collects, in this order.
SUMS = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clip_fraction")


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not finite; raised before it reaches a parameter."""


@dataclass(frozen=True)
class Coefficients:
    """What the schedules say for one update."""

    learning_rate: float
    clip_range: float
    entropy: float


class Updater:
    """Improve a policy by PPO.

    Args:
        policy: The policy.
        optimiser: Over its parameters.
        config: Settings; the fields of the update are read.
        generator: Source of the shuffling, on the training device.
        ranks: The processes that learn together.
        threads: How many chunks of a minibatch are computed at once, on a CPU.
    """

    def __init__(
        self,
        policy: EntityPolicy,
        optimiser: torch.optim.Optimizer,
        config: PPOConfig,
        generator: torch.Generator,
        ranks: Ranks | None = None,
        *,
        threads: int = 1,
    ) -> None:
        self.policy = policy
        self.optimiser = optimiser
        self.config = config
        self.generator = generator
        self.ranks = Ranks() if ranks is None else ranks
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.run_chunks = ChunkRunner(threads)

    def update(self, batch: Batch, coefficients: Coefficients) -> dict[str, Tensor | float]:
        """Make all passes over a batch.

        Args:
            batch: A rollout with advantages.
            coefficients: Learning rate, clip range and entropy coefficient in force.

        Returns:
            Metrics by tag, means over all minibatches (KL: over those of the last epoch); tensors
            that were not yet waited for.

        Raises:
            NonFiniteError: When a loss or gradient is not finite, naming the term and parameter.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = coefficients.learning_rate
        units = units_of(batch)
        size = self.config.samples_per_minibatch
        if batch.recurrent:
            size = max(1, size // batch.shape[0])
        count = self.ranks.largest(minibatch_count(len(units), size), units.device)
        rows: list[Tensor] = []
        errors: list[Tensor] = []
        with trusted(self.policy):
            epochs = 0
            while epochs < self.config.epochs:
                epochs += 1
                for minibatch in shuffled(units, count, self.generator):
                    sums, error = self._minibatch(batch, minibatch, coefficients)
                    rows.append(sums)
                    errors.append(error)
                last = torch.stack(rows[-count:])
                self._check(last)
                if self._too_far(last):
                    break
        table = torch.stack(rows)  # (minibatches, metrics)
        means = table.mean(0).unbind()
        metrics: dict[str, Tensor | float] = dict(
            zip((*SUMS, "loss/total", "optimiser/gradient_norm"), means, strict=True)
        )
        metrics["policy/kl"] = last[:, SUMS.index("policy/kl")].mean()
        metrics["policy/first_ratio_error"] = torch.expm1(errors[0])
        metrics["policy/log_ratio_max"] = torch.stack(errors).max()
        metrics["optimiser/epochs"] = epochs
        return metrics

    def _minibatch(
        self, batch: Batch, minibatch: Tensor, coefficients: Coefficients
    ) -> tuple[Tensor, Tensor]:
        """Take one gradient step.

        Returns:
            Means of `SUMS`, total loss and gradient norm, (7,); largest |log ratio|, ().
        """
        rows = rows_of(batch, minibatch)
        used = batch.advantage[rows[batch.valid[rows]] if batch.recurrent else rows]
        total = self.ranks.total(moments(used))
        samples = total[0].clamp(min=1).float()
        sums = torch.zeros(len(SUMS), device=rows.device)
        error = torch.zeros((), device=rows.device)
        gradient = Gradient(self.parameters)
        for piece in self.run_chunks(
            lambda units: self._differentiate(batch, units, total, samples, coefficients),
            self._chunks(batch, minibatch),
        ):
            gradient.add(piece.gradients)
            sums += piece.sums
            error = torch.maximum(error, piece.log_ratio)
        gradient.store()
        self.ranks.sum_gradients(self.parameters)
        sums = self.ranks.total(sums) / samples
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)
        loss = self._weighted(sums, coefficients)
        result = torch.cat([sums, loss.reshape(1), norm.reshape(1)])
        if rows.device.type == "cpu":  # looking costs nothing here, and saves the parameters
            self._check(result[None])
        self.optimiser.step()
        return result, error

    def _chunks(self, batch: Batch, minibatch: Tensor) -> list[Tensor]:
        """Cut a minibatch into pieces that fit a CPU's caches; exact, see `_loss`."""
        if minibatch.device.type != "cpu":
            return [minibatch]
        count = batch.count.view(batch.shape).sum(0) if batch.recurrent else batch.count
        pieces = chunks_by_size(count.index_select(0, minibatch), self.config.chunk_entities)
        return [minibatch.index_select(0, piece) for piece in pieces]

    def _differentiate(
        self,
        batch: Batch,
        units: Tensor,
        total: Tensor,
        samples: Tensor,
        coefficients: Coefficients,
    ) -> Piece:
        """Return a chunk's part of the gradient; nothing shared is written, see `ChunkRunner`."""
        loss, sums, log_ratio = self._loss(batch, units, total, coefficients)
        gradients = torch.autograd.grad(loss / samples, self.parameters, allow_unused=True)
        return Piece(gradients, sums, log_ratio)

    def _loss(
        self, batch: Batch, units: Tensor, total: Tensor, coefficients: Coefficients
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums over samples, so that the gradients of chunks add up to the minibatch's.

        Args:
            batch: The rollout.
            units: Part of a minibatch.
            total: Moments of the advantages of the whole minibatch.
            coefficients: In force.

        Returns:
            Loss (), the sums in the order of `SUMS` (5,), largest |log ratio| ().
        """
        rows = rows_of(batch, units)
        advantage = batch.advantage.index_select(0, rows)
        if self.config.normalise_advantages:
            advantage = normalise_advantages(advantage, total)
        log_prob, entropy, value = self._evaluate(batch, units, rows)
        log_ratio = log_prob - batch.log_prob.index_select(0, rows)
        clip = coefficients.clip_range
        terms = [
            clipped_surrogate(log_ratio, advantage, clip),
            value_loss(
                value,
                batch.value.index_select(0, rows),
                batch.target.index_select(0, rows),
                self.config.value_clip_range,
            ),
            entropy,
            approx_kl(log_ratio.detach()),
            clip_fraction(log_ratio.detach(), clip),
        ]
        if batch.recurrent:  # a sequence may hold rows that only reset
            valid = batch.valid.index_select(0, rows)
            terms = [torch.where(valid, term, 0.0) for term in terms]
            log_ratio = torch.where(valid, log_ratio, 0.0)
        sums = torch.stack([term.sum() for term in terms])
        return self._weighted(sums, coefficients), sums.detach(), log_ratio.detach().abs().max()

    def _evaluate(self, batch: Batch, units: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probability, entropy and value of each row, (n,), from one pass."""
        observation, action = select(batch.observation, rows), select(batch.action, rows)
        if not batch.recurrent:
            output = self.policy(observation)
            distribution = output.distribution
            return distribution.log_prob(action), distribution.entropy(), output.value
        assert batch.state is not None
        unfold = (batch.shape[0], len(units))  # (T, k)
        flags = {
            name: getattr(batch, name).index_select(0, rows).view(unfold)
            for name in ("begins", "valid")
        }
        output = self.policy(
            map_tree(lambda x: x.unflatten(0, unfold), observation),
            state=batch.state.index_select(0, units),
            begins=flags["begins"],
            active=flags["valid"],
        )
        log_prob = output.distribution.log_prob(map_tree(lambda x: x.unflatten(0, unfold), action))
        return log_prob.flatten(), output.distribution.entropy().flatten(), output.value.flatten()

    def _weighted(self, sums: Tensor, coefficients: Coefficients) -> Tensor:
        """Weigh the sums: policy + c_v value - c_e entropy."""
        return sums[0] + self.config.value_coefficient * sums[1] - coefficients.entropy * sums[2]

    def _too_far(self, epoch: Tensor) -> bool:
        """Whether the KL of an epoch's minibatches, (m, 7), ends the update."""
        limit = self.config.target_kl
        return limit is not None and bool(epoch[:, SUMS.index("policy/kl")].mean() > limit)

    def _check(self, rows: Tensor) -> None:
        """Refuse metrics (m, 7) that are not finite.

        Raises:
            NonFiniteError: Naming the first term and parameter that are not.
        """
        if bool(torch.isfinite(rows).all()):
            return
        names = (*SUMS, "loss/total", "optimiser/gradient_norm")
        bad = int((~torch.isfinite(rows)).any(0).nonzero()[0])
        value = rows[:, bad][~torch.isfinite(rows[:, bad])][0].item()
        culprits = [
            name
            for name, p in self.policy.named_parameters()
            if p.grad is not None and not bool(torch.isfinite(p.grad).all())
        ]
        where = f"first in the gradient of {culprits[0]!r}" if culprits else "in no gradient yet"
        raise NonFiniteError(
            f"{names[bad]} must be finite, got {value}, {where} ({len(culprits)} of "
            f"{len(self.parameters)} parameters); the parameters were not changed by it"
        )


def units_of(batch: Batch) -> Tensor:
    """Return what is shuffled: valid rows, or environments when their steps belong together."""
    if batch.recurrent:
        return torch.arange(batch.shape[1], device=batch.value.device)
    return batch.valid.nonzero().flatten()


def rows_of(batch: Batch, units: Tensor) -> Tensor:
    """Return the rows of the batch that units stand for, time by time: (n,) or (T * k,)."""
    if not batch.recurrent:
        return units
    steps, num_envs = batch.shape
    time = torch.arange(steps, device=units.device)[:, None] * num_envs
    return (time + units).flatten()


@contextlib.contextmanager
def trusted(policy: EntityPolicy) -> Iterator[None]:
    """Let the encoders skip looking at values that were checked when they came in."""
    before = [encoder.check for encoder in policy.encoders]
    for encoder in policy.encoders:
        encoder.check = False
    try:
        yield
    finally:
        for encoder, check in zip(policy.encoders, before, strict=True):
            encoder.check = check
