"""The observation that people write by hand: all slots side by side, absent ones zero."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor

from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import SelectEntity

__all__ = ["Flattened"]

EVERYTHING = "everything"


class Flattened(gymnasium.vector.VectorWrapper):
    """Show a task as one vector: the features of all slots, then their masks.

    For a policy that knows entities this is a set of one, so the same trainer runs on it. Pointing
    at an entity becomes a number of a slot, with the absent ones masked off.

    Args:
        env: A task whose observations are tensors and whose actions are `SelectEntity`.

    Raises:
        TypeError: For another action space.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        choice = env.single_action_space
        if not isinstance(choice, SelectEntity):
            raise TypeError(f"action space must be SelectEntity, got {choice}")
        self.mask_key = f"{choice.group}_mask"
        single = env.single_observation_space
        width = sum(int(np.prod(space.shape)) for space in single.values())
        self.single_observation_space = spaces.Dict(
            {
                EVERYTHING: spaces.Box(-np.inf, np.inf, (1, width), np.float32),
                f"{EVERYTHING}_mask": spaces.MultiBinary(1),
                "action_mask": spaces.MultiBinary(int(choice.n)),
            }
        )
        self.entity_schema = EntitySchema.from_space(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = spaces.Discrete(int(choice.n))
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, **options: Any) -> Any:
        """Begin episodes."""
        observation, info = self.env.reset(**options)
        return self._flatten(observation), info

    def step(self, actions: Any) -> Any:
        """Step, and show the last observations of episodes in the same way."""
        observation, *outcome, info = self.env.step(actions)
        if "final_obs" in info:
            info = {**info, "final_obs": self._flatten(info["final_obs"])}
        return self._flatten(observation), *outcome, info

    def _flatten(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        rows = [part.flatten(1).float() for part in observation.values()]
        present = observation[self.mask_key]
        return {
            EVERYTHING: torch.cat(rows, dim=1)[:, None],
            f"{EVERYTHING}_mask": torch.ones_like(present[:, :1]),
            "action_mask": observation.get("action_mask", present),
        }
