"""Drive a single environment and a batch in the same way, for whoever examines environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["Driver", "Transition", "to_array"]

Arrays = dict[str, np.ndarray]
Transition = tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


def to_array(value: Any) -> np.ndarray:
    """Return tensors and arrays as arrays, without a copy where that is possible."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


class Driver:
    """Play an environment with legal random actions; everything has a leading axis of E.

    Args:
        env: A `gymnasium.Env` (E = 1) or a `VectorEnv`.

    Raises:
        TypeError: For anything else.
    """

    def __init__(self, env: Any) -> None:
        if not isinstance(env, (gymnasium.Env, VectorEnv)):
            raise TypeError(
                f"env must be a gymnasium.Env or VectorEnv, got {type(env).__name__}; "
                "pass gymnasium.make(id) or gymnasium.make_vec(id, num_envs=4)"
            )
        self.env = env
        self.is_vector = isinstance(env, VectorEnv)
        self.num_envs = env.num_envs if isinstance(env, VectorEnv) else 1
        self.observation_space: spaces.Space[Any]
        self.action_space: spaces.Space[Any]
        if isinstance(env, VectorEnv):
            self.observation_space = env.single_observation_space
            self.action_space = env.single_action_space
        else:
            self.observation_space = env.observation_space
            self.action_space = env.action_space
        self._random = np.random.default_rng(0)

    @property
    def mode(self) -> AutoresetMode | None:
        """How the batch resets itself; None for a single environment."""
        mode = self.env.metadata.get("autoreset_mode") if self.is_vector else None
        return mode if isinstance(mode, AutoresetMode) else None

    def reset(self, seed: int | None = None, mask: np.ndarray | None = None) -> Arrays:
        """Reset and return the observation as it came, with a leading axis."""
        options = None if mask is None else {"reset_mask": mask}
        observation, _ = self.env.reset(seed=seed, options=options)
        return self._batched(observation)

    def step(self, actions: np.ndarray) -> Transition:
        """Step and return what came, with a leading axis."""
        if self.is_vector:
            observation, reward, terminated, truncated, infos = self.env.step(actions)
        else:
            observation, *flat, infos = self.env.step(actions[0])
            reward, terminated, truncated = (np.asarray([value]) for value in flat)
        flags = to_array(terminated), to_array(truncated)
        return self._batched(observation), to_array(reward), *flags, infos

    def seed_actions(self, seed: int) -> None:
        """Make `sample` repeat itself."""
        self._random = np.random.default_rng(seed)
        self.action_space.seed(seed)

    def sample(self, observation: Arrays) -> np.ndarray:
        """Draw legal actions, shape (E, ...); 0 where nothing is legal."""
        legal = self.legal(observation)
        if legal is None:
            rows = [type(self.action_space).sample(self.action_space) for _ in range(self.num_envs)]
            return np.stack(rows)
        lottery = self._random.random(legal.shape)
        return np.where(legal, lottery, -1.0).argmax(-1)

    def legal(self, observation: Arrays) -> np.ndarray | None:
        """Return the mask of legal actions, (E, n) or (E, slots, n), or None."""
        if "action_mask" in observation:
            return observation["action_mask"] > 0
        if isinstance(self.action_space, SelectEntity):
            name = self.action_space.group
            key = f"{name}_mask" if f"{name}_mask" in observation else "mask"
            return observation[key] > 0
        return None

    def acts(self, observation: Arrays) -> np.ndarray | None:
        """Return the mask of entities that act, (E, slots), or None."""
        if isinstance(self.action_space, PerEntity):
            return observation[f"{self.action_space.group}_mask"] > 0
        return None

    def rows(self, observation: Any) -> list[Any]:
        """Split a batched observation, as it came, into one per environment."""
        if not self.is_vector:
            return [{key: value[0] for key, value in observation.items()}]
        return list(iterate(self.env.observation_space, observation))

    def _batched(self, observation: Any) -> Arrays:
        if not isinstance(observation, dict):
            raise ValueError(f"observation must be a dict, got {type(observation).__name__}")
        arrays = {key: to_array(value) for key, value in observation.items()}
        return arrays if self.is_vector else {k: value[None] for k, value in arrays.items()}
