"""Minefield as one would write it for itself: a single environment in plain NumPy."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np

from entity_encoder.envs import find_task
from entity_encoder.envs.tasks.minefield import CLEARANCE, HALF_WIDTH, REACH, STRIDE, TURN

__all__ = ["PlainMinefield"]

Observation = dict[str, np.ndarray]


class PlainMinefield(gymnasium.Env[Observation, np.int64]):
    """The rules and the observations of `Entity/Minefield-v0`, without batches or tensors.

    Slots are not shuffled, which would cost this class time: its candidates for mines are
    independent anyway. It exists to tell how fast the batch is beside a plain environment.
    """

    def __init__(self, max_mines: int = 10, max_episode_steps: int = 200) -> None:
        batch: Any = find_task("Minefield")
        task = batch(max_mines=max_mines, max_episode_steps=max_episode_steps)
        self.observation_space = task.single_observation_space
        self.action_space = task.single_action_space
        self._time_limit = max_episode_steps
        self._present = np.zeros(max_mines, np.int8)
        self._mine = np.zeros((max_mines, 2), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw vehicle, target and candidates for mines; keep those that are far enough apart."""
        super().reset(seed=seed)
        points = self.np_random.uniform(-HALF_WIDTH, HALF_WIDTH, (len(self._mine) + 2, 2))
        vehicle = np.append(points[0], self.np_random.uniform(-math.pi, math.pi))
        kept = points[:2].tolist()
        present = np.zeros(len(self._mine), np.int8)
        for slot, (x, y) in enumerate(points[2:].tolist()):
            if all((x - a) ** 2 + (y - b) ** 2 >= CLEARANCE**2 for a, b in kept):
                kept.append([x, y])
                present[slot] = 1
        mine = (points[2:] * present[:, None]).astype(np.float32)
        self.place(vehicle, points[1].astype(np.float32), mine, present)
        return self._observe(), {}

    def place(
        self, vehicle: np.ndarray, target: np.ndarray, mine: np.ndarray, present: np.ndarray
    ) -> None:
        """Begin an episode with this layout: x, y, heading; (2,), (mines, 2), (mines,)."""
        self._x, self._y, self._heading = vehicle.tolist()
        self._target, self._mine, self._present = target, mine, present
        self._near = mine[present > 0]
        self._steps = 0

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Turn by pi/8 or move on, then look what the vehicle has reached."""
        self._steps += 1
        if action == 1:
            self._x += STRIDE * math.cos(self._heading)
            self._y += STRIDE * math.sin(self._heading)
        else:
            heading = self._heading + (TURN if action == 0 else -TURN)
            self._heading = math.remainder(heading, 2.0 * math.pi)
        here = np.array((self._x, self._y))
        at_target = math.dist(self._target, here) <= REACH
        at_mine = bool((((self._near - here) ** 2).sum(1) <= REACH**2).any())
        ended = at_target or at_mine
        late = self._steps >= self._time_limit and not ended
        return self._observe(), float(at_target), ended, late, {}

    def _observe(self) -> Observation:
        return {
            "vehicle": np.array([[self._x, self._y, self._heading]], np.float32),
            "vehicle_mask": np.ones(1, np.int8),
            "target": self._target[None].copy(),
            "target_mask": np.ones(1, np.int8),
            "mine": self._mine.copy(),
            "mine_mask": self._present.copy(),
            "step": np.array([self._steps / self._time_limit], np.float32),
        }
