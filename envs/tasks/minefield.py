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
MARGIN = 5.5  # the planner passes mines at this distance


class Minefield(EntityVectorEnv):
    """Drive a vehicle to a target and around mines.

    ## Description
    A square of width 200, centred on the origin, holds a vehicle, a target and mines. The vehicle
    turns on the spot or moves forward. Nothing stops it at the border. No layout is like another,
    so where to go next must be read off the whole set of mines; and the best way to see it is from
    the vehicle's seat: `entity_schema` names its frame (position and heading).

    ## Action Space
    `Discrete(3)`: 0 turns left (counter-clockwise) by pi/8, 1 moves 3 units along the heading,
    2 turns right by pi/8.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `vehicle` | (1, 3) | x, y in units; heading in radians, counter-clockwise from the x axis |
    | `target` | (1, 2) | x, y |
    | `mine` | (max_mines, 2) | x, y |
    | `<group>_mask` | (slots,) | 1 where there is one |
    | `step` | (1,) | share of the time that is used up |

    ## Rewards
    1 for reaching the target, otherwise 0: the return is the share of successes. Measured over
    4,000 episodes with 10 mines: random actions .033; `reference_policy`, which looks along 17
    headings, .9998 (with 20, 40 and 64 candidates: 1.0). Score 0 is random, 1 the reference.

    ## Starting State
    Vehicle, heading, target and `max_mines` candidates for mines are drawn uniformly. A candidate
    is dropped when it is closer than 15 to the vehicle, the target or a mine kept before it: of
    10 about 9 remain, of 64 about 40.

    ## Episode End
    Termination: the vehicle is within 5 of the target, or within 5 of a mine.
    Truncation: after `max_episode_steps` steps.

    ## Arguments
    - `max_mines` (10): candidates for mines and capacity of the group, 1 to 512; may be larger at
      test time than in training.
    - `max_episode_steps` (200).
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    action_names = ("left", "forward", "right")
    random_return = 0.033
    reference_return = 1.0

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
                    positions=xy,  # independent of each other: in random order from the start
                ),
            ),
            global_features=(Global("step"),),
            action_space=spaces.Discrete(3),
            frame=EgoFrame("vehicle", heading=("heading",)),
            max_episode_steps=max_episode_steps,
            **options,
        )
        self.time_limit = max_episode_steps
        # By action: left (counter-clockwise), forward, right.
        self._turns = torch.tensor((TURN, 0.0, -TURN)).to(self.device)
        self._strides = torch.tensor((0.0, STRIDE, 0.0)).to(self.device)

    def initial(self, rng: Rng) -> State:
        """Draw vehicle, target and candidates for mines; keep those that are far enough apart."""
        drawn = rng.uniform(2 * self.max_mines + 5, low=-1.0, high=1.0)
        points = drawn[:, 1:].view(len(rng), -1, 2) * HALF_WIDTH  # (E, 2 + mines, 2)
        present = _keep(points)
        mine = points[:, 2:] * present[:, :, None]
        # A second copy of the mines for `transition`, absent ones out of reach, with neighbouring
        # environments side by side in memory: arithmetic is several times faster that way.
        apart = torch.where(present[:, :, None], mine, torch.inf).permute(2, 1, 0).contiguous()
        return {
            "x": points[:, 0, 0],
            "y": points[:, 0, 1],
            "heading": drawn[:, 0] * math.pi,
            "target": points[:, 1],
            "mine": mine,
            "mine_present": present,
            "mine_x": apart[0].t(),
            "mine_y": apart[1].t(),
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Turn by pi/8 or move on, then look what the vehicle has reached."""
        heading = state["heading"] + self._turns.index_select(0, action)
        heading -= (heading / math.pi).trunc_() * (2.0 * math.pi)  # stays in [-pi, pi]
        stride = self._strides.index_select(0, action)
        x = heading.cos().mul_(stride).add_(state["x"])
        y = heading.sin().mul_(stride).add_(state["y"])
        at_target = _squared(state["target"][:, 0] - x, state["target"][:, 1] - y) <= REACH**2
        to_mine = _squared(state["mine_x"] - x[:, None], state["mine_y"] - y[:, None])
        at_mine = to_mine.amin(1) <= REACH**2
        state = {**state, "x": x, "y": y, "heading": heading}
        return state, at_target.float(), at_target | at_mine, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Give positions and heading as they are; the frame is the encoder's business."""
        assert self.max_episode_steps is not None
        vehicle = torch.stack((state["x"], state["y"], state["heading"]), 1)
        return {
            "vehicle": vehicle[:, None],
            "target": state["target"][:, None],
            "mine": state["mine"],
            "mine_mask": state["mine_present"],
            "step": (state["elapsed"] / self.time_limit)[:, None],
        }

    def reference_policy(self, state: State) -> Tensor:
        """Look along 17 headings, prefer the shortest way that keeps clear of mines."""
        looks = torch.arange(-8, 9, device=self.device)
        angle = state["heading"][:, None] + looks * TURN  # (E, 17)
        direction = torch.stack((angle.cos(), angle.sin()), 2)  # (E, 17, 2)
        place = torch.stack((state["x"], state["y"]), 1)
        to_target = state["target"] - place  # (E, 2)
        to_mine = state["mine"] - place[:, None]  # (E, mines, 2)
        # Along each ray: where a mine is nearest, and how far it then lies from the ray.
        along = torch.einsum("ehc,emc->ehm", direction, to_mine)
        beside = to_mine.square().sum(2)[:, None] - along.square()
        half = (MARGIN**2 - beside).clamp(min=0.0).sqrt()
        blocks = (beside < MARGIN**2) & (along > 0) & state["mine_present"][:, None]
        free = torch.where(blocks, along - half, torch.inf).amin(2)  # (E, 17)
        # Drive to the ray's point nearest to the target, turn there and go straight to it.
        drive = torch.minimum((direction * to_target[:, None]).sum(2), free).clamp(min=STRIDE)
        rest = to_target[:, None] - direction * drive[:, :, None]  # (E, 17, 2)
        cross = direction[..., 0] * rest[..., 1] - direction[..., 1] * rest[..., 0]
        angle = torch.atan2(cross, (direction * rest).sum(2)).abs()
        length = rest.norm(dim=2)
        turns = looks.abs() + angle / TURN * (length > REACH)  # each costs a step
        cost = drive + length + STRIDE * turns + (free < STRIDE) * 1e6
        best = cost.argmin(1) - 8  # 0: straight on
        return 1 - best.sign()

    def render_frame(self, state: State) -> Image.Image:
        """Show the field from above: mines dark, target green, vehicle blue."""
        x, y, heading = (float(state[name]) for name in ("x", "y", "heading"))
        half = max(HALF_WIDTH + 4.0, abs(x) + 12.0, abs(y) + 12.0)  # follows it out of the field
        canvas = Canvas((-half, -half, half, half))
        canvas.title("Minefield: reach the green target", f"step {int(state['elapsed'])}")
        corner = (HALF_WIDTH, HALF_WIDTH)
        canvas.rectangle((-corner[0], -corner[1]), corner, fill="#F1EDE0", outline="grey")
        for slot in state["mine_present"].nonzero().flatten().tolist():
            mine = state["mine"][slot].tolist()
            canvas.mark("mine", slot, (mine[0], mine[1]))
            canvas.circle((mine[0], mine[1]), REACH, fill="#F3C9B0")  # deadly within
            for k in range(8):
                angle = k * math.pi / 4
                tip = (mine[0] + 3.8 * math.cos(angle), mine[1] + 3.8 * math.sin(angle))
                canvas.line(((mine[0], mine[1]), tip), "ink", 1.8)
            canvas.circle((mine[0], mine[1]), 2.8, fill="ink")
            canvas.circle((mine[0], mine[1]), 1.1, fill="red")
        target = (float(state["target"][0]), float(state["target"][1]))
        canvas.mark("vehicle", 0, (x, y))
        canvas.mark("target", 0, target)
        for radius, colour in ((REACH, "green"), (3.4, "white"), (1.8, "green")):
            canvas.circle(target, radius, fill=colour)

        def at(forward: float, left: float) -> tuple[float, float]:
            c, s = math.cos(heading), math.sin(heading)
            return x + forward * c - left * s, y + forward * s + left * c

        canvas.line((at(3.0, 0.0), at(20.0, 0.0)), "sky", 1.5)
        canvas.polygon((at(4.0, 0.0), at(-3.5, 3.0), at(-1.5, 0.0), at(-3.5, -3.0)), "blue", "blue")
        return canvas.image()


def _keep(points: Tensor) -> Tensor:
    """Decide which candidates become mines: each yields to the kept ones before it.

    Args:
        points: Vehicle, target and candidates, (E, 2 + mines, 2).

    Returns:
        Mask (E, mines).
    """
    x, y = points[:, :, 0], points[:, :, 1]
    distance = _squared(x[:, 2:, None] - x[:, None, :], y[:, 2:, None] - y[:, None, :])
    close = (distance < CLEARANCE**2).float()  # (E, mines, 2 + mines)
    free = close[:, :, :2].amax(2, keepdim=True) == 0
    earlier = close[:, :, 2:].tril(-1)
    kept = free
    # Repeated until nothing changes; the i-th candidate is settled after i rounds at the latest.
    for _ in range(points.shape[1] - 2):
        before, kept = kept, free & (torch.bmm(earlier, kept.float()) == 0)
        if kept.device.type == "cpu" and torch.equal(kept, before):
            break
    return kept[:, :, 0]


def _squared(dx: Tensor, dy: Tensor) -> Tensor:
    return dx.square_().add_(dy.square_())
