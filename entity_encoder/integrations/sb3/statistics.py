"""Running normalisation under Stable-Baselines3: a callback decides when statistics change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from entity_encoder.integrations.sb3.normalise import check_left_alone
from entity_encoder.integrations.statistics import (
    ENOUGH_TO_BEGIN,
    find_encoders,
    never_updated,
    update_statistics,
)

__all__ = ["NormalisationCallback"]


class NormalisationCallback(BaseCallback):
    """Update the encoders' running normalisation between learning and the next rollout.

    Without this callback the statistics stay empty and features pass as they are. Observations
    are kept as delivered, normalisation happens inside the policy, and what was learned from a
    rollout is normalised as it was when it acted: PPO's first ratio is 1. The statistics are saved
    with the weights. With 16 or more environments they begin with the first observations, otherwise
    the first rollout is not normalised.

    Raises:
        ValueError: When training starts, if the environment is wrapped in a VecNormalize that
            normalises masks.
    """

    def __init__(self, verbose: int = 0) -> None:
        super().__init__(verbose)
        self._seen: list[Mapping[str, Any]] = []

    def _on_training_start(self) -> None:
        wrapper = self.model.get_vec_normalize_env()
        for encoder in find_encoders(self.model.policy):
            if isinstance(wrapper, VecNormalize) and wrapper.norm_obs:
                check_left_alone(encoder.schema, wrapper.norm_obs_keys or [])
        self._seen = []
        if never_updated(self.model.policy) and self.training_env.num_envs >= ENOUGH_TO_BEGIN:
            self._see(self.model._last_obs)
            self._update()

    def _on_rollout_start(self) -> None:
        self._update()

    def _on_step(self) -> bool:
        if not isinstance(self.model, OnPolicyAlgorithm):
            self._see(self.model._last_obs)  # what was acted on: SB3 replaces it after this call
        return True

    def _on_rollout_end(self) -> None:
        # Learning flattens the buffer into new arrays, so these stay as they are: (T, E, ...).
        if isinstance(self.model, OnPolicyAlgorithm):
            self._see(self.model.rollout_buffer.observations)

    def _on_training_end(self) -> None:
        self._update()

    def _see(self, observation: Any) -> None:
        assert isinstance(observation, dict)
        self._seen.append(dict(observation))

    def _update(self) -> None:
        for observation in self._seen:
            update_statistics(self.model.policy, observation)
        self._seen = []
