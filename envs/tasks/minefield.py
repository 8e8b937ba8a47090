"""Minefield: drive to the target, around the mines."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Global, Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.schema import EgoFrame

__all__ = ["Minefield"]

HALF_WIDTH = 100.0
TURN = math.pi / 8
STRIDE = 3.0
REACH = 5.0
CLEARANCE = 15.0


class Minefield(EntityVectorEnv):
    """Drive to the target, around the mines."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_mines: int = 10,
        max_episode_steps: int = 200,
        **options: Any,
    ) -> None:
        self.max_mines = check_option("max_mines", max_mines, 1, 512)
        far = HALF_WIDTH + STRIDE * max_episode_steps  # nothing stops the vehicle at the border
        inside, anywhere = (-HALF_WIDTH, HALF_WIDTH), (-far, far)
        xy = ("x", "y")
        super().__init__(
            num_envs,
            groups=(
                Group(
                    "vehicle",
                    1,
                    {"x": anywhere, "y": anywhere, "heading": (-4.0, 4.0)},
                    positions=xy,
                    angles=("heading",),
                ),
                Group("target", 1, {"x": inside, "y": inside}, positions=xy),
                Group(
                    "mine",
                    max_mines,
                    {"x": inside, "y": inside},
                    positions=xy,
                    state=("mine", "mine_present"),
                ),
            ),
            global_features=(Global("step"),),
            action_space=spaces.Discrete(3),
            frame=EgoFrame("vehicle", heading=("heading",)),
            max_episode_steps=max_episode_steps,
            **options,
        )

    def initial(self, rng: Rng) -> State:
        """Draw vehicle, target and candidates for mines; keep those that are far enough apart."""
        drawn = rng.uniform(2 * self.max_mines + 5, low=-1.0, high=1.0)
        points = drawn[:, 1:].view(len(rng), -1, 2) * HALF_WIDTH  # (E, 2 + mines, 2)
        present = _keep(points)
        mine = points[:, 2:] * present[:, :, None]
        out_of_reach = torch.where(present[:, :, None], mine, math.inf)
        return {
            "x": points[:, 0, 0],
            "y": points[:, 0, 1],
            "heading": drawn[:, 0] * math.pi,
            "target": points[:, 1],
            "mine": mine,
            "mine_present": present,
            "mine_x": _environments_last(out_of_reach[:, :, 0]),
            "mine_y": _environments_last(out_of_reach[:, :, 1]),
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Turn by pi/8 or move on, then look what the vehicle has reached."""
        heading = state["heading"] + (1 - action) * TURN  # 0: left, counter-clockwise; 2: right
        heading -= (heading / math.pi).trunc_() * (2.0 * math.pi)  # stays in [-pi, pi]
        stride = (action == 1) * STRIDE
        x = state["x"] + heading.cos() * stride
        y = state["y"] + heading.sin() * stride
        at_target = _squared(state["target"][:, 0] - x, state["target"][:, 1] - y) <= REACH**2
        to_mine = _squared(state["mine_x"] - x[:, None], state["mine_y"] - y[:, None])
        at_mine = to_mine.amin(1) <= REACH**2
        state = {**state, "x": x, "y": y, "heading": heading}
        return state, at_target.float(), at_target | at_mine, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Give positions and heading as they are; the frame is the encoder's business."""
        vehicle = torch.stack((state["x"], state["y"], state["heading"]), 1)
        return {
            "vehicle": vehicle[:, None],
            "target": state["target"][:, None],
            "mine": state["mine"],
            "mine_mask": state["mine_present"],
            "step": (state["elapsed"] / self.max_episode_steps)[:, None],
        }


def _keep(points: Tensor) -> Tensor:
    """Decide which candidates become mines: each yields to the kept ones before it.

    Args:
        points: Vehicle, target and candidates, (E, 2 + mines, 2).

    Returns:
        Mask (E, mines).
    """
    x, y = points[:, :, 0], points[:, :, 1]
    distance = _squared(x[:, :, None] - x[:, None, :], y[:, :, None] - y[:, None, :])
    earlier = (distance < CLEARANCE**2).float().tril_(-1)[:, 2:]  # (E, mines, 2 + mines)
    kept = torch.ones_like(x)
    # Repeated until nothing changes; the i-th candidate is settled after i rounds at the latest.
    for _ in range(points.shape[1] - 2):
        before, conflicts = kept, earlier @ kept[:, :, None]
        kept = torch.cat((kept[:, :2], (conflicts[:, :, 0] == 0).float()), 1)
        if kept.device.type == "cpu" and torch.equal(kept, before):
            break
    return kept[:, 2:] > 0


def _squared(dx: Tensor, dy: Tensor) -> Tensor:
    return dx.square_().add_(dy.square_())


def _environments_last(tensor: Tensor) -> Tensor:
    """Return the same (E, n) tensor with neighbouring environments side by side in memory.

    Arithmetic with one number per environment is several times faster that way.
    """
    return tensor.t().contiguous().t()
