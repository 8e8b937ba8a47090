"""Xor: answer a question about two bits, negated if told."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Global, Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State

__all__ = ["Xor"]


class Xor(EntityVectorEnv):
    """Answer whether two bits differ, or the contrary if told to negate.

    ## Description
    The smallest task in which entities and a global feature must be combined.

    ## Action Space
    `Discrete(2)`: the answer.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `input` | (max_inputs, 1) | value, 0 or 1 |
    | `input_mask` | (max_inputs,) | 1 where there is an input; all are there |
    | `negate` | (1,) | 1 if the answer is to be negated |

    ## Rewards
    1 for the right answer, otherwise 0. Random answers return .5 (100,000 episodes: .500); the
    optimum, which `reference_policy` reaches, is 1. Score 0 is random, 1 the optimum.

    ## Starting State
    Inputs and `negate` are fair coins.

    ## Episode End
    Termination: after the first answer.

    ## Arguments
    - `max_inputs` (2): 2 to 64; with more than two the question is whether the number of ones is
      odd.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    random_return = 0.5

    def __init__(self, num_envs: int = 1, *, max_inputs: int = 2, **options: Any) -> None:
        self.max_inputs = check_option("max_inputs", max_inputs, 2, 64)
        super().__init__(
            num_envs,
            groups=(Group("input", max_inputs, {"value": (0.0, 1.0)}, state=("value",)),),
            global_features=(Global("negate"),),
            action_space=spaces.Discrete(2),
            **options,
        )

    def initial(self, rng: Rng) -> State:
        """Toss the coins."""
        coins = rng.integers(2, self.max_inputs + 1)
        return {"negate": coins[:, 0], "value": coins[:, 1:]}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Judge the answer."""
        right = action == self.reference_policy(state)
        return {**state}, right.float(), torch.ones_like(right), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the inputs and the order to negate."""
        return {
            "input": state["value"][:, :, None].float(),
            "negate": state["negate"][:, None].float(),
        }

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["negate"], dtype=torch.float32)

    def reference_policy(self, state: State) -> Tensor:
        """Give the right answer."""
        return (state["value"].sum(1) + state["negate"]) % 2

    def render_frame(self, state: State) -> Image.Image:
        """Show the inputs as lamps, and the question."""
        values = state["value"].tolist()
        columns = min(len(values), 8)
        rows = -(-len(values) // columns)
        canvas = Canvas((0, -rows - 1, columns, 0))
        negate = bool(state["negate"])
        canvas.title(
            f"Xor: is the number of ones {'even' if negate else 'odd'}?",
            "negated" if negate else "not negated",
        )
        for slot, value in enumerate(values):
            x, y = slot % columns + 0.5, -(slot // columns) - 0.5
            canvas.mark("input", slot, (x, y))
            canvas.circle((x, y), 0.36, "yellow" if value else "white", "ink", 2)
            canvas.text((x, y), str(value), size=canvas.pixels(0.3))
        answer = int((sum(values) + negate) % 2)
        size = canvas.pixels(0.16)
        canvas.text((columns / 2, -rows - 0.5), f"answer: {answer}", "grey", min(size, 40))
        return canvas.image()
