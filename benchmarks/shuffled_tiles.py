"""The task on which `benchmarks.integrations` compares, and the settings all trainers share."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.envs import EntityEnv, EntityVectorEnv, Group, Rng, State
from entity_encoder.envs.tasks.floor_is_lava import DIRECTIONS

__all__ = ["REWARDS", "ShuffledTiles", "make_single"]

NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCHES, RATE = 32, 32, 4, 4, 1e-3
BATCH = NUM_ENVS * ROLLOUT
ENTROPY, VALUE = 0.01, 0.5
ENCODER: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 2}

REWARDS: list[float] = []  # of every step, in the order of steps


class ShuffledTiles(EntityVectorEnv):
    """Eight tiles in shuffled slots, some of them missing, one of them safe: step on it.

    Columns: direction x and y, in steps of one, and 1 for the safe tile. One step is an episode,
    random actions are right once in eight. It is FloorIsLava without its geometry: what is left
    is that the order of slots means nothing.
    """

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        unit = (-1.0, 1.0)
        tile = Group("tile", 8, {"x": unit, "y": unit, "safe": (0.0, 1.0)}, state=("tile", "there"))
        super().__init__(num_envs, groups=(tile,), action_space=spaces.Discrete(8), **options)

    def initial(self, rng: Rng) -> State:
        """Draw which tiles there are; the first one is safe until slots are shuffled."""
        order = rng.permutation(8)
        count = rng.integers(8, 1, low=1)
        there = torch.arange(8, device=rng.device) < count
        offset = torch.tensor(DIRECTIONS, dtype=torch.float32, device=rng.device)[order]
        safe = torch.zeros(len(rng), 8, 1, device=rng.device)
        safe[:, 0] = 1
        tile = torch.cat([offset, safe], dim=2) * there[:, :, None]
        return {"tile": tile, "there": there, "right": order[:, 0]}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Take the step that ends the episode, and write down whether it was right."""
        reward = (action == state["right"]).float()
        REWARDS.extend(reward.tolist())
        return state, reward, torch.ones_like(action, dtype=torch.bool), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the tiles."""
        return {"tile": state["tile"], "tile_mask": state["there"]}


def make_single(flat: bool = False) -> gymnasium.Env[Any, Any]:
    """One environment; `flat` makes a vector of its observation."""
    env: gymnasium.Env[Any, Any] = EntityEnv(ShuffledTiles)
    return gymnasium.wrappers.FlattenObservation(env) if flat else env
