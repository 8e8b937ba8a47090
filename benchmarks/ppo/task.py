"""The task that all trainers share: sets of up to 16 entities, about half of the slots filled."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.envs import EntityVectorEnv, Group, Rng, State

__all__ = ["ACTIONS", "FEATURES", "SLOTS", "Loudest"]

SLOTS, FEATURES, ACTIONS = 16, 8, 5
EPISODE = 32  # steps of an episode, after a first one of random length
BOUND = 1.0


class Loudest(EntityVectorEnv):
    """Name the column, among the first five, in which some entity has the largest number.

    Everything is drawn anew in each step: 1 to 16 entities, anywhere in 16 slots, with 8 numbers
    each. The reward is 1 for the right column. Episodes terminate, so that nobody's treatment of
    time limits is measured, and not all in the same step.
    """

    random_return = EPISODE / ACTIONS
    reference_return = float(EPISODE)

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        columns = {f"x{i}": (-BOUND, BOUND) for i in range(FEATURES)}
        super().__init__(
            num_envs,
            groups=(Group("entities", SLOTS, columns),),
            action_space=spaces.Discrete(ACTIONS),
            shuffle_slots=False,  # entities stand anywhere as it is
            **options,
        )

    def _draw(self, rng: Rng) -> State:
        count = rng.integers(SLOTS + 1, 1, low=1)  # (E, 1)
        present = rng.permutation(SLOTS) < count  # (E, 16)
        return {
            "entities": rng.uniform(SLOTS, FEATURES, low=-BOUND, high=BOUND) * present[..., None],
            "present": present,
        }

    def initial(self, rng: Rng) -> State:
        """Draw entities, and how long the first episode lasts."""
        left = rng.integers(EPISODE + 1, 1, low=1)[:, 0]
        return {**self._draw(rng), "left": left}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Compare with the right column, and draw the next entities."""
        reward = (action == self.reference_policy(state)).float()
        left = state["left"] - 1
        return {**self._draw(rng), "left": left}, reward, left <= 0, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the entities."""
        return {"entities": state["entities"], "entities_mask": state["present"]}

    def reference_policy(self, state: State) -> Tensor:
        """Return the right column."""
        shown = torch.where(state["present"][..., None], state["entities"], -BOUND)
        return shown[..., :ACTIONS].amax(1).argmax(1)
