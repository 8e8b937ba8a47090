"""A policy that learns no more, as the commander of the other side."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor

from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.saved import load_policy
from entity_encoder.envs.rng import Rng

__all__ = ["FrozenOpponent"]


class FrozenOpponent:
    """Play the other side with a copy of a policy, as it is now.

    Environments that let a function command the other side, such as `Skirmish`, take it as their
    `opponent`. What it draws comes from the environment's own random numbers, so that a seed still
    decides about the whole episode.

    Args:
        policy: It is copied: what the original learns later does not show.
        deterministic: Take the likeliest actions instead of drawing them.

    Attributes:
        policy: The copy.

    Raises:
        ValueError: For a policy with memory, which nobody would carry from step to step.
    """

    def __init__(self, policy: EntityPolicy, *, deterministic: bool = False) -> None:
        if policy.state_size:
            raise ValueError(
                f"policy must have no memory to be an opponent, got recurrent={policy.state_size}"
            )
        self.policy = copy.deepcopy(policy).eval().requires_grad_(False)
        self.deterministic = deterministic

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        deterministic: bool = False,
        device: str | torch.device = "cpu",
    ) -> FrozenOpponent:
        """Return the policy of a checkpoint as an opponent."""
        return cls(load_policy(path, device=device), deterministic=deterministic)

    @torch.no_grad()
    def __call__(self, seen: dict[str, Tensor], rng: Rng) -> Tensor:
        """Choose for all rows.

        Args:
            seen: Observation of the other side, leaves (E, ...).
            rng: Random numbers of these environments.

        Returns:
            Choices, int64, (E, slots).
        """
        with self.policy.trusting():
            distribution = self.policy(seen).distribution
        if self.deterministic:
            mode: Tensor = distribution.mode()
            return mode
        probs: Tensor = distribution.probs  # (E, slots, choices)
        # The first of several exponential clocks to ring is i with a probability of rate i.
        waiting = -torch.log1p(-rng.uniform(*probs.shape[1:]))
        return (waiting.clamp(min=1e-12) / probs).argmin(-1)
