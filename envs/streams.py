"""The seeds of a batch of environments and how many episodes each has begun since."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from entity_encoder.envs.rng import Rng, seeds_to_keys

__all__ = ["Seed", "Streams"]

Seed = int | Sequence[int | None] | None


class Streams:
    """One random stream per environment.

    Args:
        num_envs: Number of environments, E.
        device: Where the numbers are drawn.

    Attributes:
        key: Hash of each environment's seed, int64, (E,).
        episode: Episodes begun since it was seeded, counted from 0, int64, (E,).
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.key = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.episode = torch.zeros_like(self.key)
        self._seeded = False

    def rng(self, step: Tensor | int, rows: Tensor | None = None) -> Rng:
        """Return the generator of one step, for the rows with these indices or for all."""
        if rows is None:
            return Rng(self.key, self.episode, step)
        return Rng(self.key[rows], self.episode[rows], step)

    def next_episode(self, where: Tensor) -> None:
        """Move on to the next episode where the mask, (E,), is True."""
        self.episode = self.episode + where

    def seed(self, seed: Seed, where: Tensor, draw: Callable[[int], np.ndarray]) -> None:
        """Give new seeds; environments without one move on to their next episode.

        Args:
            seed: An int s seeds environment i with s + i; a list gives each its own, None in it
                (or instead of it) continues that environment's stream.
            where: Environments that begin an episode, (E,) bool; the others are left alone.
            draw: Returns that many random seeds; asked once, if the first call leaves some open.

        Raises:
            ValueError: For a negative seed or a list of the wrong length.
        """
        count = len(self.key)
        seeds: list[int | None]
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + env for env in range(count)]
        else:
            seeds = [None] * count if seed is None else list(seed)
        if len(seeds) != count:
            raise ValueError(f"seed must have num_envs={count} entries, got {len(seeds)}")
        for env, value in enumerate(seeds):
            if value is not None and value < 0:
                raise ValueError(f"seed must not be negative, got {value} for env {env}")
        if not self._seeded:
            self._seeded = True
            if None in seeds:
                drawn = draw(count).tolist()
                seeds = [drawn[env] if s is None else s for env, s in enumerate(seeds)]
        self.next_episode(where)
        if any(value is not None for value in seeds):
            keys = seeds_to_keys([value or 0 for value in seeds]).to(self.key.device)
            given = torch.tensor([s is not None for s in seeds]).to(where.device) & where
            self.key = torch.where(given, keys, self.key)
            self.episode = self.episode.masked_fill(given, 0)

    def get_state(self) -> dict[str, Tensor]:
        """Return copies of both tensors."""
        return {"key": self.key.clone(), "episode": self.episode.clone()}

    def set_state(self, content: dict[str, Tensor]) -> None:
        """Continue from `get_state`'s result."""
        self.key = content["key"].to(self.key.device, copy=True)
        self.episode = content["episode"].to(self.key.device, copy=True)
        self._seeded = True
