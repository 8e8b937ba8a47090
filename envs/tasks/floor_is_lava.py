"""FloorIsLava: step on the one safe tile among the eight around you."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.schema import EgoFrame

__all__ = ["FloorIsLava"]

HALF_WIDTH = 1000
# Clockwise from north, in the order of the actions; y points north.
DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))


class FloorIsLava(EntityVectorEnv):
    """Step on the one safe tile."""

    def __init__(self, num_envs: int = 1, *, max_tiles: int = 8, **options: Any) -> None:
        self.max_tiles = check_option("max_tiles", max_tiles, 1, 8)
        bound = (-HALF_WIDTH - 1.0, HALF_WIDTH + 1.0)
        columns, xy = {"x": bound, "y": bound}, ("x", "y")
        super().__init__(
            num_envs,
            groups=(
                Group("player", 1, columns, positions=xy),
                Group("high_ground", 1, columns, positions=xy),
                Group("lava", 7, columns, positions=xy, state=("lava", "lava_present")),
            ),
            action_space=spaces.Discrete(8),
            frame=EgoFrame("player"),
            **options,
        )

    def initial(self, rng: Rng) -> State:
        """Draw the player's point, the safe direction and which other tiles exist."""
        player = rng.integers(HALF_WIDTH + 1, 2, low=-HALF_WIDTH)
        order = rng.permutation(8)  # directions; the first is safe
        tiles = rng.integers(self.max_tiles + 1, 1, low=1)
        tile = player[:, None] + torch.tensor(DIRECTIONS, device=rng.device)[order]
        present = torch.arange(1, 8, device=rng.device) < tiles  # (E, 7)
        return {
            "player": player.float(),
            "safe": order[:, 0],
            "high_ground": tile[:, 0].float(),
            "lava": tile[:, 1:].float() * present[:, :, None],
            "lava_present": present,
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Take the step that ends the episode."""
        offset = torch.tensor(DIRECTIONS, dtype=torch.float32, device=action.device)[action]
        terminated = torch.ones_like(action, dtype=torch.bool)
        state = {**state, "player": state["player"] + offset}
        return state, (action == state["safe"]).float(), terminated, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Give absolute coordinates; the frame is the encoder's business."""
        return {
            "player": state["player"][:, None],
            "high_ground": state["high_ground"][:, None],
            "lava": state["lava"],
            "lava_mask": state["lava_present"],
        }

    def reference_policy(self, state: State) -> Tensor:
        """Step on the high ground."""
        return state["safe"]
