"""PickMatchingBalls: take all balls of the commonest colour, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import SelectEntity

__all__ = ["PickMatchingBalls"]

COLOURS = 6
SHOWN = ("red", "blue", "green", "yellow", "pink", "sky")


class PickMatchingBalls(EntityVectorEnv):
    """Pick the balls of the commonest colour, all of them, before any other.

    ## Description
    Balls have one of six colours. Picking goes on until a ball of a second colour is picked, or
    none is left. What counts is how many balls of the first colour were picked, so each choice
    depends on all balls and on those already picked.

    ## Action Space
    `SelectEntity("ball", max_balls)`: a ball that is not yet selected; see `action_mask`.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `ball` | (max_balls, 7) | colour (6, one-hot), 1 if selected |
    | `ball_mask` | (max_balls,) | 1 where there is a ball, selected or not |
    | `action_mask` | (max_balls,) | 1 where there is a ball that is not selected |

    ## Rewards
    At the end: balls picked of the first colour / size of the largest colour class, so 1 if all
    balls of a commonest colour were picked. Measured over 4,000 episodes with 32 balls: random
    picks return .147; `reference_policy`, which is optimal, 1. Score 0 is random, 1 the optimum.

    ## Starting State
    The number of balls is drawn uniformly from `min_balls` to `max_balls`, colours uniformly.

    ## Episode End
    Termination: a ball of a second colour, or the last ball, is picked. No truncation unless
    `max_episode_steps` asks for it.

    ## Arguments
    - `max_balls` (32): capacity, 3 to 1024; may be larger at test time than in training.
    - `min_balls` (as `max_balls`): 3 to `max_balls`.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_balls: int = 32,
        min_balls: int | None = None,
        **options: Any,
    ) -> None:
        self.max_balls = check_option("max_balls", max_balls, 3, 1024)
        self.min_balls = check_option("min_balls", min_balls or max_balls, 3, max_balls)
        columns = {f"colour_{i}": (0.0, 1.0) for i in range(COLOURS)} | {"selected": (0.0, 1.0)}
        super().__init__(
            num_envs,
            groups=(Group("ball", max_balls, columns, state=("colour", "present", "selected")),),
            action_space=SelectEntity("ball", max_balls),
            action_mask=True,
            **options,
        )
        # Rows: colour 0, colour 0 selected, colour 1, ..., absent. Columns: as observed.
        kinds = torch.zeros(2 * COLOURS + 1, COLOURS + 1)
        kinds[range(2 * COLOURS), [kind // 2 for kind in range(2 * COLOURS)]] = 1.0
        kinds[1::2, COLOURS] = 1.0
        self._kinds = kinds.to(self.device)
        # Measured for the powers of two from 4 to 256; the mean over the range of counts.
        counts = np.log2(np.arange(self.min_balls, max_balls + 1))
        measured = (0.706, 0.428, 0.253, 0.147, 0.082, 0.044, 0.023)
        self.random_return = float(np.interp(counts, range(2, 9), measured).mean())

    def initial(self, rng: Rng) -> State:
        """Draw the number of balls and their colours."""
        count = rng.integers(self.max_balls + 1, 1, low=self.min_balls)
        present = torch.arange(self.max_balls, device=rng.device) < count
        return {
            "colour": rng.integers(COLOURS, self.max_balls),
            "present": present,
            "selected": torch.zeros_like(present),
            "first": torch.full((len(rng),), -1, device=rng.device),  # the first ball's colour
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Select a ball; the second colour or the last ball ends the episode."""
        slot = action[:, None]
        colour = state["colour"].gather(1, slot)[:, 0]
        first = torch.where(state["first"] < 0, colour, state["first"])
        selected = state["selected"].scatter(1, slot, True)
        sizes, picked = _class_sizes(state), state["elapsed"] + 1
        second = colour != first
        done = second | (picked == sizes.sum(1))
        right = picked - second.long()  # all but a last ball of a second colour
        reward = torch.where(done, right / sizes.amax(1), 0.0)
        return {**state, "selected": selected, "first": first}, reward, done, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show all balls, and which are selected."""
        present = state["present"]
        kind = (state["colour"] * 2 + state["selected"]).where(present, 2 * COLOURS)
        return {
            "ball": torch.embedding(self._kinds, kind),
            "ball_mask": present,
            "action_mask": present & ~state["selected"],
        }

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["first"], dtype=torch.float32)

    def reference_policy(self, state: State) -> Tensor:
        """Pick the balls of the commonest colour (or of the first one picked), then any other."""
        commonest = _class_sizes(state).argmax(1)
        wanted = torch.where(state["first"] < 0, commonest, state["first"])
        free = state["present"] & ~state["selected"]
        matches = state["colour"] == wanted[:, None]
        return (free.long() + (free & matches).long()).argmax(1)

    def render_frame(self, state: State) -> Image.Image:
        """Show the balls by colour; selected ones wear a ring and a tick."""
        columns = max(1, round(self.max_balls**0.5))
        rows = -(-self.max_balls // columns)
        canvas = Canvas((0, -rows, columns, 0))
        largest = int(_class_sizes({k: v[None] for k, v in state.items()}).amax())
        canvas.title(
            "Pick all balls of one colour",
            f"{int(state['selected'].sum())} picked, largest class {largest}",
        )
        for slot in state["present"].nonzero().flatten().tolist():
            x, y = slot % columns + 0.5, -(slot // columns) - 0.5
            canvas.mark("ball", slot, (x, y))
            colour = SHOWN[int(state["colour"][slot])]
            if state["selected"][slot]:
                canvas.circle((x, y), 0.44, outline="ink", width=2.5)
                canvas.circle((x, y), 0.32, fill=colour)
                tick = ((x - 0.14, y), (x - 0.03, y - 0.12), (x + 0.16, y + 0.13))
                canvas.line(tick, "ink", 3)
            else:
                canvas.circle((x, y), 0.36, fill=colour)
        return canvas.image()


def _class_sizes(state: State) -> Tensor:
    """Count the balls of each colour, (E, COLOURS)."""
    sizes = torch.zeros(len(state["colour"]), COLOURS, device=state["colour"].device)
    return sizes.scatter_add(1, state["colour"], state["present"].float())
