"""Stable-Baselines3 with the features extractor that its users write."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from benchmarks.ppo.network import PaddedEncoder
from benchmarks.ppo.setting import Meter, Setting, make_task
from entity_encoder.integrations.sb3 import GymnasiumVecEnv

__all__ = ["PaddedExtractor", "StableBaselines"]


class PaddedExtractor(BaseFeaturesExtractor):
    """The padded encoder; the mask arrives as float32 and is made bool again."""

    def __init__(self, observation_space: spaces.Space[Any], setting: Setting) -> None:
        super().__init__(observation_space, setting.d_model)
        self.padded = PaddedEncoder(setting)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Map a batch of observations to (B, D)."""
        out: Tensor = self.padded(observations["entities"], observations["entities_mask"])
        return out


class StableBaselines:
    """SB3's PPO, one encoder for policy and value, one linear layer for each behind it."""

    def __init__(self, setting: Setting) -> None:
        self.meter = Meter()
        envs = make_task(setting, self.meter, autoreset_mode="SameStep")
        self.model = PPO(
            "MultiInputPolicy",
            GymnasiumVecEnv(envs),
            policy_kwargs={
                "features_extractor_class": PaddedExtractor,
                "features_extractor_kwargs": {"setting": setting},
                "net_arch": [],
            },
            learning_rate=setting.learning_rate,
            n_steps=setting.steps,
            batch_size=setting.minibatch,
            n_epochs=setting.epochs,
            gamma=setting.gamma,
            gae_lambda=setting.gae_lambda,
            clip_range=setting.clip_range,
            vf_coef=setting.value_weight,
            ent_coef=setting.entropy_weight,
            max_grad_norm=setting.max_grad_norm,
            normalize_advantage=setting.normalise_advantages,
            seed=setting.seed,
            device=setting.device,
        )
        self.rollout = setting.rollout
        self.meter.watch(self.model, "train", "update")

    def train(self, iterations: int) -> None:
        """Go on for some rollouts and updates."""
        self.model.learn(iterations * self.rollout, reset_num_timesteps=False)
