"""CherryPick: take the best half of a set."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import SelectEntity

__all__ = ["CherryPick"]


class CherryPick(EntityVectorEnv):
    """Pick the best half of the cherries."""

    def __init__(self, num_envs: int = 1, *, max_cherries: int = 32, **options: Any) -> None:
        self.max_cherries = check_option("max_cherries", max_cherries, 2, 1024)
        self.picks = self.max_cherries // 2
        super().__init__(
            num_envs,
            groups=(
                Group(
                    "cherry",
                    max_cherries,
                    {"quality": (-20.0, 20.0)},
                    state=("quality", "present"),
                ),
            ),
            action_space=SelectEntity("cherry", max_cherries),
            **options,
        )

    def initial(self, rng: Rng) -> State:
        """Draw qualities and shift them so that the best `picks` sum to 1."""
        quality = rng.normal(self.max_cherries).double()
        best = quality.topk(self.picks, dim=1).values.sum(1, keepdim=True)
        quality = (quality + (1.0 - best) / self.picks).float()
        return {"quality": quality, "present": torch.ones_like(quality, dtype=torch.bool)}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Take one cherry and gain its quality."""
        slot = action[:, None]
        reward = state["quality"].gather(1, slot)[:, 0]
        present = state["present"].scatter(1, slot, False)
        return {**state, "present": present}, reward, state["elapsed"] + 1 >= self.picks, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the cherries that are left."""
        quality = state["quality"] * state["present"]
        return {"cherry": quality[:, :, None], "cherry_mask": state["present"]}

    def reference_policy(self, state: State) -> Tensor:
        """Take the best cherry that is left, which is optimal."""
        return state["quality"].masked_fill(~state["present"], -torch.inf).argmax(1)
