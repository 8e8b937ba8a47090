"""Sorter: walk to numbered tiles in ascending order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from entity_encoder.envs.groups import Global, Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.tasks.paths import STEPS, distances
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.schema import EgoFrame

__all__ = ["Sorter"]

MOST = 20  # tiles, and the greatest number
CELLS = 5  # along each side
CELL = 3.0  # width of a cell in strides
HALF_WIDTH = CELLS * CELL / 2
JITTER = 0.25  # how far from the middle of its cell a tile may lie, along each axis
REACH = 0.75  # above sqrt(1/2): whoever goes in strides along the axes can reach every tile
LATTICE = int(2 * HALF_WIDTH) + 1  # places along an axis to which strides can lead
# Mean returns of random actions over 8,000 episodes, by number of tiles.
COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
RANDOM = (0.218, 0.117, 0.073, 0.047, 0.033, 0.0174, 0.0110, 0.0077, 0.0041, 0.0027)
RANDOM_CONTINUOUS = (0.192, 0.107, 0.066, 0.044, 0.032, 0.0173, 0.0109, 0.0078, 0.0041, 0.0027)
SLACK = 1e-4  # the planner's distance from the border of a tile: sums of strides are not exact


class Sorter(EntityVectorEnv):
    """Walk to numbered tiles in ascending order, and around those whose turn has not come.

    ## Description
    Tiles lie in a square field, each with a number. The agent visits the one with the smallest
    number first, then the next greater one, and so on. Which tile is next depends on all numbers
    and on what was visited; the way there must not touch a later one. After the example "Sorter"
    of Unity's ML-Agents.

    ## Action Space
    `Discrete(5)`: stays (0) or moves 1 up, right, down or left (1 to 4; y points up). With
    `continuous=True`, `Box(-1, 1, (2,))`: moves by this vector, shortened to length 1 if it is
    longer. The border stops the agent.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `agent` | (1, 2) | x, y from -7.5 to 7.5 |
    | `tile` | (max_tiles, 4) | x, y; number, 1 to 20; 1 if visited |
    | `<group>_mask` | (slots,) | 1 where there is one |
    | `step` | (1,) | share of the time that is used up |

    `entity_schema` names the agent's frame: the encoder sees where the tiles lie from there.

    ## Rewards
    1 / n for each of the n tiles that is visited when it is its turn: the optimum is 1, and
    `reference_policy`, which takes the shortest way around later tiles, reaches it. Random actions
    return .218 / .047 / .003 with 2 / 5 / 20 tiles (.192 / .044 / .003 if `continuous`), measured
    over 8,000 episodes of at most 400 steps. Score 0 is random, 1 the optimum.

    ## Starting State
    The number of tiles is drawn uniformly from `min_tiles` to `max_tiles`, their numbers without
    replacement from 1 to 20. Tiles and agent lie in different cells of a 5x5 grid, drawn without
    replacement, at most .25 from the middle of their cell along each axis.

    ## Episode End
    Termination: all tiles are visited, or one is touched before its turn (a distance of .75 or
    less when a step ends). Visited tiles may be touched again.
    Truncation: after `max_episode_steps` steps.

    ## Arguments
    - `max_tiles` (5): capacity, 2 to 20; a curriculum makes it grow, and it may be larger at test
      time than in training.
    - `min_tiles` (2): 2 to `max_tiles`.
    - `continuous` (False): whether actions are vectors.
    - `max_episode_steps` (400): for 20 tiles the reference needs about 199, and never more than
      256 in 1,000 episodes.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    action_names = ("stay", "up", "right", "down", "left")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_tiles: int = 5,
        min_tiles: int = 2,
        continuous: bool = False,
        max_episode_steps: int = 400,
        **options: Any,
    ) -> None:
        self.max_tiles = check_option("max_tiles", max_tiles, 2, MOST)
        self.min_tiles = check_option("min_tiles", min_tiles, 2, max_tiles)
        self.continuous = continuous
        self.time_limit = max_episode_steps
        field = {"x": (-HALF_WIDTH, HALF_WIDTH), "y": (-HALF_WIDTH, HALF_WIDTH)}
        xy = ("x", "y")
        super().__init__(
            num_envs,
            groups=(
                Group("agent", 1, field, positions=xy),
                Group(
                    "tile",
                    max_tiles,
                    field | {"number": (0.0, float(MOST)), "visited": (0.0, 1.0)},
                    positions=xy,
                    state=("tile", "number", "present", "waiting"),
                ),
            ),
            global_features=(Global("step"),),
            action_space=spaces.Box(-1.0, 1.0, (2,)) if continuous else spaces.Discrete(5),
            frame=EgoFrame("agent"),
            max_episode_steps=max_episode_steps,
            **options,
        )
        measured = RANDOM_CONTINUOUS if continuous else RANDOM
        counts = range(self.min_tiles, max_tiles + 1)
        self.random_return = float(np.interp(counts, COUNTS, measured).mean())
        self._moves = torch.tensor(((0.0, 0.0), *STEPS)).to(self.device)

    def initial(self, rng: Rng) -> State:
        """Draw cells, places in them, and numbers."""
        n = self.max_tiles
        cell = rng.permutation(CELLS**2)[:, : n + 1]
        column_row = torch.stack((cell % CELLS, cell // CELLS), 2)
        place = (column_row - CELLS // 2) * CELL + rng.uniform(n + 1, 2, low=-JITTER, high=JITTER)
        count = rng.integers(n + 1, 1, low=self.min_tiles)
        present = torch.arange(n, device=rng.device) < count
        number = 1.0 + rng.permutation(MOST)[:, :n]
        return {
            "place": place[:, n],
            "tile": place[:, :n] * present[:, :, None],
            "number": number * present,
            "present": present,
            "waiting": present.clone(),  # not yet visited
            "count": count[:, 0],
            "left": count[:, 0].clone(),
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Move, then look which tile is touched."""
        if self.continuous:
            move = action / action.norm(dim=1, keepdim=True).clamp(min=1.0)
        else:
            move = self._moves[action]
        place = (state["place"] + move).clamp(-HALF_WIDTH, HALF_WIDTH)
        x, y = (state["tile"][:, :, axis] - place[:, axis, None] for axis in (0, 1))
        touched = x.square_().add_(y.square_()) <= REACH**2  # at most one: tiles lie 2.5 apart
        touched &= state["waiting"]
        right = touched & _next(state)
        # Of the tile that is touched: 0 for none, 1 before its turn, 2 if it is its turn.
        value = (touched.float() + right).amax(1)
        hit = value == 2.0
        left = state["left"] - hit.long()
        waiting = state["waiting"] > right  # on bools "and not"
        reward = hit / state["count"]
        state = {**state, "place": place, "waiting": waiting, "left": left}
        return state, reward, (value == 1.0) | (left == 0), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Give positions as they are; the frame is the encoder's business."""
        visited = (state["present"] > state["waiting"]).float()
        return {
            "agent": state["place"][:, None],
            "tile": torch.cat((state["tile"], torch.stack((state["number"], visited), 2)), 2),
            "tile_mask": state["present"],
            "step": (state["elapsed"] / self.time_limit)[:, None],
        }

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["place"][:, 0])

    def reference_policy(self, state: State) -> Tensor:
        """Go the shortest way in strides along the axes that touches no tile before its turn."""
        corner = state["place"] + HALF_WIDTH  # (E, 2)
        here = corner.long()  # column and row of the agent among the places it can stride to
        stride = torch.arange(LATTICE, device=self.device)
        lattice = (corner - here)[:, None] + stride[:, None]  # (E, LATTICE, 2), from the corner
        # (E, tiles, LATTICE, 2): squared differences along each axis
        apart = (lattice[:, None] - HALF_WIDTH - state["tile"][:, :, None]).square()
        apart = (
            apart[:, :, None, :, 0] + apart[:, :, :, None, 1]
        ).sqrt()  # (E, tiles, row, column)
        target = _next(state)
        later = state["waiting"] & ~target
        goal = ((apart <= REACH - SLACK) & target[:, :, None, None]).any(1)
        blocked = ((apart <= REACH + SLACK) & later[:, :, None, None]).any(1)
        outside = lattice > 2 * HALF_WIDTH
        blocked = blocked | outside[:, None, :, 0] | outside[:, :, None, 1]
        far = distances(goal, blocked, 4 * LATTICE).masked_fill(blocked, torch.inf)
        far = pad(far, (1, 1, 1, 1), value=torch.inf)
        row = torch.arange(len(far), device=self.device)
        around = [far[row, here[:, 1] + 1 + dy, here[:, 0] + 1 + dx] for dx, dy in STEPS]
        action = torch.stack(around, 1).argmin(1) + 1
        return self._moves[action] if self.continuous else action

    def render_frame(self, state: State) -> Image.Image:
        """Show the field from above: visited tiles green, the next one ringed, the agent blue."""
        half = HALF_WIDTH + 0.3
        canvas = Canvas((-half, -half, half, half))
        count = int(state["count"])
        done = f"{count - int(state['left'])} of {count}"
        canvas.title("Sorter: visit tiles in ascending order", done)
        canvas.rectangle((-half, -half), (half, half), "#F1EDE0", "grey")
        following = _next({key: value[None] for key, value in state.items()})[0]
        for slot in state["present"].nonzero().flatten().tolist():
            x, y = state["tile"][slot].tolist()
            fill, ink, edge = ("green", "white", "green")
            if state["waiting"][slot]:
                fill, ink, edge = ("white", "ink", "grey")
            if following[slot]:
                canvas.circle((x, y), REACH + 0.25, None, "orange", 4)
            canvas.mark("tile", slot, (x, y))
            canvas.circle((x, y), REACH, fill, edge, 2)
            canvas.text((x, y), str(int(state["number"][slot])), ink, canvas.pixels(0.75))
        x, y = state["place"].tolist()
        canvas.mark("agent", 0, (x, y))
        canvas.circle((x, y), 0.4, "blue", "white", 2)
        return canvas.image()


def _next(state: State) -> Tensor:
    """Mark the tile that must be visited next; none when all are visited, (E, tiles)."""
    number = state["number"].masked_fill(~state["waiting"], MOST + 1.0)
    return (number == number.amin(1, keepdim=True)) & state["waiting"]
