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
    """Step on the one safe tile among the eight around you.

    ## Description
    The player stands somewhere on a large grid. Some of the eight neighbouring places are tiles:
    one is high ground, the others are lava. Coordinates are absolute and large, differences are
    small and decide: without the player's frame, which `entity_schema` names, hardly anything
    learns this.

    ## Action Space
    `Discrete(8)`: one step north, north-east, east, ... clockwise. y points north.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `player` | (1, 2) | x, y: whole numbers within [-1000, 1000] |
    | `high_ground` | (1, 2) | x, y |
    | `lava` | (7, 2) | x, y |
    | `<group>_mask` | (slots,) | 1 where there is one |

    ## Rewards
    1 on the high ground, otherwise 0. Random actions return 1/8 (4,000 episodes: .125); the
    optimum, which `reference_policy` reaches, is 1. Score 0 is random, 1 the optimum.

    ## Starting State
    The player's point is drawn uniformly, the number of tiles uniformly from 1 to `max_tiles`,
    and their places without replacement.

    ## Episode End
    Termination: after the first step.

    ## Arguments
    - `max_tiles` (8): 1 to 8, high ground included.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    action_names = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
    random_return = 0.125

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
        self._offsets = torch.tensor(DIRECTIONS).to(self.device)  # (8, 2)

    def initial(self, rng: Rng) -> State:
        """Draw the player's point, the safe direction and which other tiles exist."""
        player = rng.integers(HALF_WIDTH + 1, 2, low=-HALF_WIDTH)
        order = rng.permutation(8)  # directions; the first is safe
        tiles = rng.integers(self.max_tiles + 1, 1, low=1)
        tile = player[:, None] + self._offsets[order]
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
        terminated = torch.ones_like(action, dtype=torch.bool)
        state = {**state, "player": state["player"] + self._offsets[action]}
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

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["player"][:, 0])

    def render_frame(self, state: State) -> Image.Image:
        """Show the player's surroundings; y points up."""
        safe = state["high_ground"].tolist()
        step = DIRECTIONS[int(state["safe"])]
        middle = (safe[0] - step[0], safe[1] - step[1])
        canvas = Canvas((-2, -2, 2, 2), background="#E9EBEE")
        x, y = (round(value) for value in state["player"].tolist())
        canvas.title("FloorIsLava: step on the green tile", f"player at ({x}, {y})")

        def tile(place: list[float], colour: str) -> tuple[float, float]:
            cx, cy = place[0] - middle[0], place[1] - middle[1]
            corners = (cx - 0.45, cy - 0.45), (cx + 0.45, cy + 0.45)
            canvas.rectangle(*corners, fill=colour, radius=0.08)
            return cx, cy

        tile(list(middle), "white")
        for slot in state["lava_present"].nonzero().flatten().tolist():
            cx, cy = tile(state["lava"][slot].tolist(), "red")
            canvas.mark("lava", slot, (cx, cy))
            for dy in (-0.2, 0.0, 0.2):
                wave = [
                    (cx - 0.3 + 0.06 * k, cy + dy + 0.04 * (1 if k % 4 < 2 else -1))
                    for k in range(11)
                ]
                canvas.line(wave, "yellow", 2)
        cx, cy = tile(safe, "green")
        canvas.mark("high_ground", 0, (cx, cy))
        canvas.polygon(((cx - 0.28, cy - 0.2), (cx, cy + 0.28), (cx + 0.28, cy - 0.2)), "#7FD1B0")
        player = (x - middle[0], y - middle[1])
        canvas.circle(player, 0.2, fill="blue", outline="white", width=2)
        canvas.mark("player", 0, player)
        return canvas.image()
