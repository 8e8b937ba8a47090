"""Array-vectorised gymnasium environments as a VecEnv of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from entity_encoder.integrations.sb3.masks import action_masks
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["GymnasiumVecEnv"]


class GymnasiumVecEnv(VecEnv):
    """Step a `gymnasium.vector.VectorEnv` as SB3 steps its own.

    SB3's DummyVecEnv calls one environment after the other; environments that step as arrays
    lose their speed there. Wrap the result in SB3's `VecMonitor` for episode statistics.

    Args:
        envs: Environments in autoreset mode SAME_STEP, which is how SB3 resets.

    Raises:
        ValueError: For another autoreset mode.

    Example:
        envs = gymnasium.make_vec("Entity/Minefield-v0", 64, autoreset_mode="SameStep")
        PPO("MultiInputPolicy", VecMonitor(GymnasiumVecEnv(envs)))
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"autoreset mode must be {AutoresetMode.SAME_STEP}, got {mode}: SB3 expects the "
                "first observation of the next episode where one has ended; make the environments "
                'with autoreset_mode="SameStep"'
            )
        self.envs = envs
        self._actions: np.ndarray | None = None
        self._observation: Any = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Reset all environments, with the seeds given to `seed` if there are any."""
        seeds: Any = self._seeds if any(seed is not None for seed in self._seeds) else None
        observation, infos = self.envs.reset(seed=seeds)
        self.reset_infos = _split(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        self._observation = _own(observation)
        return self._observation

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step; where an episode has ended, its last observation is in the infos."""
        observation, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        terminated, truncated = np.asarray(terminated), np.asarray(truncated)
        dones = terminated | truncated
        rows = _split(infos, self.num_envs)
        for index in np.flatnonzero(dones):
            rows[index]["terminal_observation"] = _row(infos["final_obs"], int(index))
            rows[index]["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        self._observation = _own(observation)
        return self._observation, np.asarray(rewards, dtype=np.float32), dones, rows

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment, once per index."""
        places = list(self._get_indices(indices))
        if attr_name == "action_masks" and self._has_masks():
            return [lambda place=place: self._masks()[place] for place in places]
        return [getattr(self.envs, attr_name)] * len(places)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment."""
        setattr(self.envs, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the vector environment, or `action_masks`; one result per index."""
        places = list(self._get_indices(indices))
        if method_name == "action_masks" and self._has_masks():
            return list(self._masks()[places])
        result = getattr(self.envs, method_name)(*method_args, **method_kwargs)
        return [result] * len(places)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Say no: there are no single environments that could be wrapped."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Draw all environments."""
        frames: Any = self.envs.render()
        return list(frames or [])

    def _has_masks(self) -> bool:
        space = self.observation_space
        told = isinstance(space, spaces.Dict) and "action_mask" in space.spaces
        return told or isinstance(self.action_space, SelectEntity | PerEntity)

    def _masks(self) -> np.ndarray:
        schema = getattr(self.envs, "entity_schema", None)
        schema = schema or EntitySchema.from_space(self.observation_space)
        return action_masks(self.action_space, schema, self._observation)


def _own(observation: Any) -> Any:
    """Copy an observation: a vector environment may write the next one into the same memory."""
    if isinstance(observation, Mapping):
        return {key: np.asarray(value).copy() for key, value in observation.items()}
    return np.asarray(observation).copy()


def _row(final: Any, index: int) -> Any:
    """Return the final observation of one environment, from gymnasium's arrays or from tensors."""
    if isinstance(final, Mapping):
        return {key: np.asarray(value[index]).copy() for key, value in final.items()}
    return final[index]


def _split(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Give each environment its own infos: what gymnasium marks as valid for it."""
    rows: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key, values in infos.items():
        if key.startswith(("_", "final_")) or f"_{key}" not in infos:
            continue
        for index in np.flatnonzero(np.asarray(infos[f"_{key}"])):
            rows[index][key] = values[index]
    return rows
