"""A small task for tests of integrations, and observations of it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from entity_encoder import SelectEntity

__all__ = ["Beacon", "beacons", "observe", "permuted", "with_junk"]

SMALL: dict[str, Any] = {"d_model": 12, "n_heads": 3, "n_layers": 1}


class Beacon(gymnasium.Env[dict[str, np.ndarray], Any]):
    """Say on which side the one lit beacon among some dark ones stands.

    Groups: `beacon` with columns x in {-1, 0, 1} and lit, `rock` with a column that means
    nothing. One step shows one scene; the right answer gives 1. Slots are in random order, with
    holes. Three steps make an episode; every second one ends by truncation.

    Args:
        slots: Slots of `beacon`.
        junk: What absent slots hold.
        action: "side" (0: left, 1: middle, 2: right), "point" (the lit beacon's slot) or "push"
            (a number whose sign is the side).
        legal: Whether the observation has an `action_mask`, which forbids one wrong side.
        box_masks: Whether masks are declared as Box, for libraries that know no MultiBinary.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        *,
        slots: int = 5,
        junk: float = 0.0,
        action: str = "side",
        legal: bool = False,
        box_masks: bool = False,
    ) -> None:
        self.slots, self.junk, self.action, self.legal = slots, junk, action, legal
        mask: Any = (lambda n: spaces.Box(0, 1, (n,))) if box_masks else spaces.MultiBinary
        parts: dict[str, spaces.Space[Any]] = {
            "beacon": spaces.Box(-np.inf, np.inf, (slots, 2), np.float32),
            "beacon_mask": mask(slots),
            "rock": spaces.Box(-np.inf, np.inf, (3, 1), np.float32),
            "rock_mask": mask(3),
            "time": spaces.Box(0, 1, (1,), np.float32),
        }
        if legal:
            parts["action_mask"] = mask(3)
        self.observation_space: Any = spaces.Dict(parts)
        actions: dict[str, spaces.Space[Any]] = {
            "side": spaces.Discrete(3),
            "point": SelectEntity("beacon", slots),
            "push": spaces.Box(-1, 1, (1,), np.float32),
        }
        self.action_space: Any = actions[action]
        self.episodes = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        self.episodes += 1
        return self._draw(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        reward = float(self._right(action))
        self.elapsed += 1
        ends = self.elapsed == 3
        truncated = ends and self.episodes % 2 == 0
        return self._draw(), reward, ends and not truncated, truncated, {}

    def _right(self, action: Any) -> bool:
        if self.action == "point":
            return int(action) == self.lit
        if self.action == "push":
            return int(np.sign(np.round(float(np.squeeze(action))))) == self.side - 1
        return int(action) == self.side

    def _draw(self) -> dict[str, np.ndarray]:
        rng = self.np_random
        order = rng.permutation(self.slots)
        present = order[: int(rng.integers(1, self.slots))]
        rocks = (rng.random(3) < 0.5).astype(np.int8)
        self.lit, self.side = int(present[0]), int(rng.integers(3))
        table = np.full((self.slots, 2), self.junk, dtype=np.float32)
        table[present] = np.stack([rng.integers(-1, 2, len(present)), np.zeros(len(present))], 1)
        table[self.lit] = (self.side - 1, 1)
        mask = np.zeros(self.slots, dtype=np.int8)
        mask[present] = 1
        stones = rng.normal(size=(3, 1)).astype(np.float32)
        stones[rocks == 0] = self.junk
        observation: dict[str, np.ndarray] = {
            "beacon": table,
            "beacon_mask": mask,
            "rock": stones,
            "rock_mask": rocks,
            "time": np.array([self.elapsed / 3], dtype=np.float32),
        }
        if self.legal:
            observation["action_mask"] = np.ones(3, dtype=np.int8)
            observation["action_mask"][(self.side + 1) % 3] = 0
        parts = self.observation_space.spaces
        return {key: value.astype(parts[key].dtype) for key, value in observation.items()}


def beacons(num_envs: int, mode: AutoresetMode, **options: Any) -> SyncVectorEnv:
    """Return several environments stepped together."""
    return SyncVectorEnv([lambda: Beacon(**options)] * num_envs, autoreset_mode=mode)


def observe(rows: int, *, seed: int = 3, **options: Any) -> dict[str, np.ndarray]:
    """Return a batch of observations, (rows, ...)."""
    env = Beacon(**options)
    drawn = [env.reset(seed=seed)[0]]
    for row in range(1, rows):
        env.elapsed = row % 3
        drawn.append(env._draw())
    return {key: np.stack([row[key] for row in drawn]) for key in drawn[0]}


def with_junk(observation: dict[str, np.ndarray], junk: float) -> dict[str, np.ndarray]:
    """Return the observation with other content in absent slots."""
    result = {key: value.copy() for key, value in observation.items()}
    for group in ("beacon", "rock"):
        result[group][result[f"{group}_mask"] == 0] = junk
    return result


def permuted(
    observation: dict[str, np.ndarray], *, seed: int = 5
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the observation with the beacons' slots in another order, and that order."""
    order = np.random.default_rng(seed).permutation(observation["beacon"].shape[-2])
    result = dict(observation)
    result["beacon"] = observation["beacon"][..., order, :]
    result["beacon_mask"] = observation["beacon_mask"][..., order]
    return result, order
