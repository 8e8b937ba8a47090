"""VecNormalize for entities: absent ones do not count, masks stay masks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from entity_encoder.integrations.sb3.extractor import schema_of
from entity_encoder.observation import read_observation
from entity_encoder.schema import EntityGroup, EntitySchema

__all__ = ["EntityVecNormalize", "check_left_alone"]

Observation = dict[str, np.ndarray]


def check_left_alone(schema: EntitySchema, keys: Iterable[str]) -> None:
    """Refuse to normalise masks.

    Raises:
        ValueError: Naming the masks and the keys to pass instead.
    """
    masks = {group.mask_key for group in schema.groups} | set(schema.action_masks)
    wrong = [key for key in keys if key in masks]
    if wrong:
        vectors = [item.name for item in schema.globals]
        raise ValueError(
            f"VecNormalize must leave masks alone, got {wrong} among its keys: they would no "
            f"longer say who is there. Use EntityVecNormalize, which ignores absent entities as "
            f"well, or NormalisationCallback without any wrapper; to keep VecNormalize, pass "
            f"norm_obs_keys={vectors}"
        )


class EntityVecNormalize(VecNormalize):
    """Normalise the features of present entities, global features and rewards.

    The same arguments, methods, saving and loading as VecNormalize. Each feature column has one
    mean and variance over all present entities of its group; absent slots become 0; masks,
    presence columns and categories pass as they are. Observations are stored normalised, so
    learning sees what acted.

    Args:
        venv: Environment to wrap.
        schema: What the observation contains; default: the environment's `entity_schema`, or read
            from its space.
        norm_obs_keys: Groups and global features to normalise; default all.
        **options: Further arguments of VecNormalize.

    Raises:
        ValueError: When `norm_obs_keys` holds masks, or the schema has a frame of reference.
    """

    schema: EntitySchema
    obs_rms: dict[str, RunningMeanStd]

    def __init__(
        self,
        venv: VecEnv,
        *,
        schema: EntitySchema | None = None,
        norm_obs_keys: list[str] | None = None,
        **options: Any,
    ) -> None:
        self.schema = schema or schema_of(venv) or EntitySchema.from_space(venv.observation_space)
        if self.schema.frame is not None:
            raise ValueError(
                f"the schema must have no frame, got {self.schema.frame}: scaling x and y apart "
                "would bend the geometry that the frame reads; use NormalisationCallback, which "
                "normalises after the frame"
            )
        if norm_obs_keys is None:
            norm_obs_keys = [group.name for group in self.schema.groups if group.features]
            norm_obs_keys += [item.name for item in self.schema.globals]
        check_left_alone(self.schema, norm_obs_keys)
        super().__init__(venv, norm_obs_keys=norm_obs_keys, **options)
        if not self.norm_obs:
            return
        self.groups = {g.name: g for g in self.schema.groups if g.name in norm_obs_keys}
        self.obs_rms = {
            key: RunningMeanStd(shape=venv.observation_space[key].shape[-1:])  # type: ignore[index]
            for key in norm_obs_keys
        }
        assert isinstance(venv.observation_space, spaces.Dict)
        parts = dict(venv.observation_space.spaces)
        for key in norm_obs_keys:  # buffers take their type from the space
            parts[key] = spaces.Box(-np.inf, np.inf, parts[key].shape, np.float32)
        self.observation_space = spaces.Dict(parts)

    def step_wait(self) -> Any:
        """Step, update the statistics, and return everything normalised."""
        obs, rewards, dones, infos = self.venv.step_wait()
        self.old_obs, self.old_reward = obs, rewards  # type: ignore[assignment]
        self._observe(obs)
        if self.training:
            self._update_reward(rewards)
        for index in np.flatnonzero(dones):
            info = infos[index]
            if "terminal_observation" in info:
                info["terminal_observation"] = self.normalize_obs(info["terminal_observation"])
        rewards = self.normalize_reward(rewards)
        self.returns[dones] = 0
        return self.normalize_obs(obs), rewards, dones, infos

    def reset(self) -> Any:
        """Reset all environments and return their first observations normalised."""
        obs = self.venv.reset()
        self.old_obs = obs  # type: ignore[assignment]
        self.returns = np.zeros(self.num_envs)
        self._observe(obs)
        return self.normalize_obs(obs)

    def _observe(self, obs: Any) -> None:
        if not (self.training and self.norm_obs):
            return
        masks = self._masks(obs)
        for key, rms in self.obs_rms.items():
            rows = obs[key][masks[key]] if key in masks else obs[key]  # (M, F)
            if len(rows):
                rms.update(rows.astype(np.float64))

    def normalize_obs(self, obs: Any) -> Any:
        """Normalise an observation without updating statistics; any leading dimensions."""
        if not self.norm_obs:
            return dict(obs)
        masks = self._masks(obs)
        result = dict(obs)
        for key, rms in self.obs_rms.items():
            clean = np.where(masks[key][..., None], obs[key], 0.0) if key in masks else obs[key]
            scaled = self._normalize_obs(clean, rms).astype(np.float32)
            if key in self.groups:
                kept = self.groups[key].columns(_left_alone(self.groups[key]))
                scaled[..., kept] = clean[..., kept]
                scaled[~masks[key]] = 0.0
            result[key] = scaled
        return result

    def unnormalize_obs(self, obs: Any) -> Any:
        """Undo `normalize_obs`, except for clipping and what absent slots held."""
        if not self.norm_obs:
            return dict(obs)
        result = dict(obs)
        for key, rms in self.obs_rms.items():
            raw = self._unnormalize_obs(obs[key], rms)
            if key in self.groups:
                kept = self.groups[key].columns(_left_alone(self.groups[key]))
                raw[..., kept] = obs[key][..., kept]
            result[key] = raw
        return result

    def _masks(self, obs: Any) -> dict[str, np.ndarray]:
        read = read_observation(self.schema, obs)
        return {
            group.name: mask.reshape(*read.lead, -1).numpy()
            for group, mask in zip(self.schema.groups, read.masks, strict=True)
        }


def _left_alone(group: EntityGroup) -> list[str]:
    """Columns that are no measurements: presence and categories."""
    presence = [] if group.presence is None else [group.presence]
    return presence + [name for name, _ in group.categories]
