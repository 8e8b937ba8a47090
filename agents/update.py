"""One update: several passes over a rollout in shuffled minibatches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from entity_encoder.agents.accumulation import ChunkRunner, Gradient, Piece
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.cuda_graphs import Captured
from entity_encoder.agents.distributed import Ranks
from entity_encoder.agents.minibatches import chunks_by_size, minibatch_count, shuffled
from entity_encoder.agents.objective import SUMS, Coefficients, Objective, units_of
from entity_encoder.agents.optimiser import set_learning_rate, state_tensors
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.rollout import Batch

__all__ = ["NonFiniteError", "Updater"]

#: What a minibatch reports, in this order.
COLUMNS = (*SUMS, "loss/total", "optimiser/gradient_norm", "policy/log_ratio_max")


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not finite."""


class Updater:
    """Improve a policy by PPO.

    Args:
        policy: The policy.
        optimiser: Over its parameters.
        config: Settings; the fields of the update are read.
        generator: Source of the shuffling, on the training device.
        ranks: The processes that learn together.
        captured: Whether gradient steps are replayed as CUDA graphs, see `Captured`.
        precision: Returns the context in which the policy computes.

    Attributes:
        run_chunks: Computes the chunks of a minibatch, on a CPU.
    """

    def __init__(
        self,
        policy: EntityPolicy,
        optimiser: torch.optim.Optimizer,
        config: PPOConfig,
        generator: torch.Generator,
        ranks: Ranks | None = None,
        *,
        captured: bool = False,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.policy = policy
        self.optimiser = optimiser
        self.config = config
        self.generator = generator
        self.ranks = Ranks() if ranks is None else ranks
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.run_chunks = ChunkRunner()
        # A graph has static shapes: rows that only reset are masked instead of left out.
        self.objective = Objective(policy, config, masked=captured, precision=precision)
        self.captured = captured
        self._static: Batch | None = None
        self._graphs: dict[int, Captured] = {}

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
                On a CPU it never reaches a parameter; elsewhere it is found after the epoch.
        """
        set_learning_rate(self.optimiser, coefficients.learning_rate)
        if self.captured:
            batch = self._keep(batch)
        units = units_of(batch, masked=self.captured)
        size = self.config.samples_per_minibatch
        if batch.recurrent:
            size = max(1, size // batch.shape[0])
        count = self.ranks.largest(minibatch_count(len(units), size), units.device)
        table: list[Tensor] = []
        epochs = 0
        with self.policy.trusting():
            while epochs < self.config.epochs:
                epochs += 1
                for minibatch in shuffled(units, count, self.generator):
                    table.append(self._learn(batch, minibatch, coefficients))
                epoch = torch.stack(table[-count:])  # (minibatches, columns)
                self._check(epoch)  # the only wait for the device
                if self._too_far(epoch):
                    break
        whole = torch.stack(table)
        metrics: dict[str, Tensor | float] = dict(zip(COLUMNS, whole.mean(0).unbind(), strict=True))
        metrics["policy/kl"] = epoch[:, COLUMNS.index("policy/kl")].mean()
        metrics["policy/first_ratio_error"] = torch.expm1(whole[0, -1])
        metrics["policy/log_ratio_max"] = whole[:, -1].max()
        metrics["optimiser/epochs"] = epochs
        return metrics

    def _learn(self, batch: Batch, minibatch: Tensor, coefficients: Coefficients) -> Tensor:
        """Take one gradient step; return the numbers of `COLUMNS`, (8,)."""
        if self.captured:
            return self._replay(batch, minibatch, coefficients)
        report = self._compute_gradient(batch, minibatch, coefficients)
        if minibatch.device.type == "cpu":  # looking costs nothing here, and saves the parameters
            self._check(report[None])
        self.optimiser.step()
        return report

    def _compute_gradient(
        self, batch: Batch, minibatch: Tensor, coefficients: Coefficients
    ) -> Tensor:
        """Leave a minibatch's clipped gradient in the parameters; return `COLUMNS`, (8,)."""
        total = self.ranks.total(self.objective.moments(batch, minibatch))
        samples = total[0].clamp(min=1).float()

        def differentiate(units: Tensor) -> Piece:
            # Nothing shared is written, for chunks may be computed at once.
            loss, sums, log_ratio = self.objective(batch, units, total, coefficients)
            gradients = torch.autograd.grad(loss / samples, self.parameters, allow_unused=True)
            return Piece(gradients, sums, log_ratio)

        gradient = Gradient(self.parameters)
        sums, log_ratio = total.new_zeros(len(SUMS)).float(), total.new_zeros(1).float()
        for piece in self.run_chunks(differentiate, self._chunks(batch, minibatch)):
            gradient.add(piece.gradients)
            sums += piece.sums
            log_ratio = torch.maximum(log_ratio, piece.log_ratio)
        gradient.store()
        self.ranks.sum_gradients(self.parameters)
        sums = self.ranks.total(sums) / samples
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)
        loss = self.objective.weigh(sums, coefficients)
        return torch.cat([sums, loss.reshape(1), norm.reshape(1), log_ratio])

    def _chunks(self, batch: Batch, minibatch: Tensor) -> list[Tensor]:
        """Cut a minibatch into pieces that fit a CPU's caches; their gradients add up to its."""
        if minibatch.device.type != "cpu" or self.captured:
            return [minibatch]
        count = batch.count.view(batch.shape).sum(0) if batch.recurrent else batch.count
        pieces = chunks_by_size(count.index_select(0, minibatch), self.config.chunk_entities)
        return [minibatch.index_select(0, piece) for piece in pieces]

    # --- CUDA graphs --------------------------------------------------------------------------

    def _keep(self, batch: Batch) -> Batch:
        """Copy what is computed anew for each rollout to where the graphs read it."""
        if self._static is None:
            own = {name: getattr(batch, name).clone() for name in ("advantage", "target", "count")}
            state = None if batch.state is None else batch.state.clone()
            self._static = dataclasses.replace(batch, **own, state=state)
        for name in ("advantage", "target", "count", "state"):
            if getattr(batch, name) is not None:
                getattr(self._static, name).copy_(getattr(batch, name))
        return self._static

    def _replay(self, batch: Batch, minibatch: Tensor, coefficients: Coefficients) -> Tensor:
        """Take a gradient step by replaying the graph for minibatches of this size."""

        def step(inputs: dict[str, Tensor]) -> Tensor:
            now = Coefficients(0.0, clip_range=inputs["clip"], entropy=inputs["entropy"])
            report = self._compute_gradient(batch, inputs["units"], now)
            self.optimiser.step()
            return report

        if len(minibatch) not in self._graphs:
            keep = [*self.parameters, *state_tensors(self.optimiser)]
            self._graphs[len(minibatch)] = Captured(step, preserve=keep)
        numbers = {"clip": coefficients.clip_range, "entropy": coefficients.entropy}
        scalars = {k: torch.full((), v, device=minibatch.device) for k, v in numbers.items()}
        report: Tensor = self._graphs[len(minibatch)]({"units": minibatch, **scalars})
        return report.clone()

    # --- checks -------------------------------------------------------------------------------

    def _too_far(self, epoch: Tensor) -> bool:
        """Whether the KL of an epoch's minibatches, (m, columns), ends the update."""
        limit = self.config.target_kl
        return limit is not None and bool(epoch[:, COLUMNS.index("policy/kl")].mean() > limit)

    def _check(self, rows: Tensor) -> None:
        """Refuse reports (m, columns) that are not finite.

        Raises:
            NonFiniteError: Naming the first term and parameter that are not.
        """
        if bool(torch.isfinite(rows).all()):
            return
        bad = int((~torch.isfinite(rows)).any(0).nonzero()[0])
        value = float(rows[:, bad][~torch.isfinite(rows[:, bad])][0])
        culprits = [
            name
            for name, p in self.policy.named_parameters()
            if p.grad is not None and not bool(torch.isfinite(p.grad).all())
        ]
        where = f"first in the gradient of {culprits[0]!r}" if culprits else "in no gradient yet"
        raise NonFiniteError(
            f"{COLUMNS[bad]} must be finite, got {value}, {where} ({len(culprits)} of "
            f"{len(self.parameters)} parameters)"
        )
