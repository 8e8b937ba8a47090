from typing import Any

import numpy as np
import pytest
import torch

from tests.entity_encoder.integrations.toys import SMALL, Beacon

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from entity_encoder.integrations.sb3 import NormalisationCallback, policy_kwargs

sb3: Any = stable_baselines3


def make_ppo(num_envs: int = 2, **options: Any) -> Any:
    env = DummyVecEnv([Beacon] * num_envs)
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 3, "device": "cpu"} | options
    return sb3.PPO("MultiInputPolicy", env, policy_kwargs=policy_kwargs(**SMALL), **options)


def beacon_norm(model: Any) -> Any:
    return model.policy.features_extractor.encoder.group_norms[0]


class Watch(BaseCallback):
    """Keep every observation that was acted on, and the statistics at the end of each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[np.ndarray] = []
        self.means: list[torch.Tensor] = []

    def _on_step(self) -> bool:
        seen: Any = self.model._last_obs
        self.rows.extend(seen["beacon"][seen["beacon_mask"] == 1])
        return True

    def _on_rollout_end(self) -> None:
        self.means.append(beacon_norm(self.model).mean.clone())


def test_without_the_callback_features_pass_as_they_are() -> None:
    model = make_ppo()
    model.learn(16)
    assert beacon_norm(model).count == 0


def test_statistics_are_those_of_the_present_entities_that_were_acted_on() -> None:
    model, watch = make_ppo(), Watch()
    model.learn(32, callback=[watch, NormalisationCallback()])
    rows = np.stack(watch.rows).astype(np.float64)
    norm = beacon_norm(model)
    assert norm.count == len(rows)
    np.testing.assert_allclose(norm.mean, rows.mean(0))
    np.testing.assert_allclose(norm.var, rows.var(0))


def test_statistics_stay_as_they_are_from_acting_to_the_end_of_learning() -> None:
    model, watch = make_ppo(learning_rate=0.0), Watch()
    model.learn(48, callback=[watch, NormalisationCallback()])
    assert torch.equal(watch.means[0], torch.zeros(2, dtype=torch.float64))
    assert not torch.equal(watch.means[1], watch.means[2])
    # With no learning the last update saw the same function as its rollout: ratio 1 throughout.
    assert model.logger.name_to_value["train/clip_fraction"] == 0
    assert abs(model.logger.name_to_value["train/approx_kl"]) < 1e-10


def test_many_environments_give_statistics_to_the_first_rollout_already() -> None:
    model, watch = make_ppo(16, n_steps=2), Watch()
    model.learn(32, callback=[watch, NormalisationCallback()])
    assert not torch.equal(watch.means[0], torch.zeros(2, dtype=torch.float64))


def test_off_policy_learners_update_all_copies_of_the_encoder() -> None:
    model = sb3.DQN(
        "MultiInputPolicy",
        Beacon(),
        policy_kwargs=policy_kwargs(**SMALL),
        learning_starts=4,
        buffer_size=50,
        batch_size=4,
        train_freq=2,
    )
    model.learn(12, callback=NormalisationCallback())
    nets: tuple[Any, ...] = (model.q_net, model.q_net_target)
    online, target = (net.features_extractor.encoder.group_norms[0] for net in nets)
    assert online.count > 12  # at least one entity in each of 12 observations
    assert torch.equal(online.mean, target.mean)


def test_a_wrapper_that_normalises_masks_is_refused_with_the_fix() -> None:
    env = VecNormalize(DummyVecEnv([lambda: Beacon(box_masks=True)]))
    kwargs = policy_kwargs(**SMALL)
    model = sb3.PPO("MultiInputPolicy", env, policy_kwargs=kwargs, n_steps=4, batch_size=4)
    with pytest.raises(
        ValueError, match=r"masks alone, got \['beacon_mask', 'rock_mask'\].*Use En"
    ):
        model.learn(4, callback=NormalisationCallback())


def test_a_wrapper_that_normalises_global_features_only_is_welcome() -> None:
    env = VecNormalize(DummyVecEnv([Beacon]), norm_obs_keys=["time"])
    kwargs = policy_kwargs(**SMALL)
    model = sb3.PPO("MultiInputPolicy", env, policy_kwargs=kwargs, n_steps=4, batch_size=4)
    model.learn(8, callback=NormalisationCallback())
    assert beacon_norm(model).count > 0
