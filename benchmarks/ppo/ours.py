"""Our trainer, as users start it."""

from __future__ import annotations

import dataclasses

from benchmarks.ppo.setting import Meter, Setting, make_task
from entity_encoder.agents import PPO, PPOConfig

__all__ = ["Ours", "make_config"]


class Ours:
    """`PPO` with the shared settings; no normalisation, which the others have not.

    Args:
        setting: Sizes and coefficients.
        attention: How attention is computed; see `EntityEncoder`.
    """

    def __init__(self, setting: Setting, *, attention: str = "auto") -> None:
        self.meter = Meter()
        envs = make_task(
            setting, self.meter, output="torch", autoreset_mode="SameStep", device=setting.device
        )
        config = dataclasses.replace(make_config(setting), attention=attention)
        self.agent = PPO(envs, config, progress=False)
        self.meter.watch(self.agent.updater, "update", "update")

    def train(self, iterations: int) -> None:
        """Go on for some rollouts and updates."""
        total = self.agent.steps + iterations * self.agent.config.rollout_size
        self.agent.config = dataclasses.replace(self.agent.config, total_steps=total)
        self.agent.learn()


def make_config(setting: Setting) -> PPOConfig:
    """Return the shared settings in our words."""
    on_gpu = setting.device.startswith("cuda")
    return PPOConfig(
        total_steps=setting.rollout,
        seed=setting.seed,
        device=setting.device,
        threads=setting.threads,
        num_envs=setting.num_envs,
        rollout_steps=setting.steps,
        epochs=setting.epochs,
        minibatch_size=setting.minibatch,
        gamma=setting.gamma,
        gae_lambda=setting.gae_lambda,
        learning_rate=setting.learning_rate,
        learning_rate_schedule="constant",
        adam_epsilon=setting.adam_epsilon,
        clip_range=setting.clip_range,
        value_clip_range=None,
        value_coefficient=2 * setting.value_weight,  # our value loss is half the squared error
        entropy_coefficient=setting.entropy_weight,
        entropy_schedule="constant",
        max_grad_norm=setting.max_grad_norm,
        target_kl=None,
        normalise_advantages=setting.normalise_advantages,
        normalise_rewards=False,
        normalise_observations=False,
        count_feature=False,
        d_model=setting.d_model,
        n_heads=setting.n_heads,
        n_layers=setting.n_layers,
        d_ff=setting.d_ff,
        cuda_graphs=on_gpu,
    )
