"""skrl with the shared model of its documentation: one pass for policy and value."""

from __future__ import annotations

from typing import Any

import skrl
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from skrl.utils.spaces.torch import unflatten_tensorized_space
from torch import Tensor

from benchmarks.ppo.network import PaddedActorCritic
from benchmarks.ppo.setting import Meter, Setting, make_task
from entity_encoder.integrations.skrl import wrap_env

__all__ = ["Skrl"]


class SharedModel(CategoricalMixin, DeterministicMixin, Model):
    """Policy and value; what the policy computed is kept for the value."""

    def __init__(self, setting: Setting, **spaces: Any) -> None:
        Model.__init__(self, **spaces, device=setting.device)
        CategoricalMixin.__init__(self, unnormalized_log_prob=True, role="policy")
        DeterministicMixin.__init__(self, role="value")
        self.network = PaddedActorCritic(setting)
        self._values: Tensor | None = None

    def act(self, inputs: dict[str, Any], *, role: str = "") -> Any:
        """Call the mixin of the role."""
        mixin: Any = CategoricalMixin if role == "policy" else DeterministicMixin
        return mixin.act(self, inputs, role=role)

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        """Return logits (B, 5) or values (B, 1)."""
        if role == "value" and self._values is not None:
            values, self._values = self._values, None
            return values[:, None], {}
        flat = inputs["observations"]
        parts = unflatten_tensorized_space(self.observation_space, flat)
        logits, values = self.network(parts["entities"], parts["entities_mask"])
        if role == "value":
            return values[:, None], {}
        self._values = values
        return logits, {}


class Skrl:
    """skrl's PPO and its sequential trainer.

    Args:
        setting: Sizes and coefficients.
    """

    def __init__(self, setting: Setting) -> None:
        skrl.logger.setLevel("WARNING")
        set_seed(setting.seed)
        self.meter = Meter()
        self.setting = setting
        self.env = wrap_env(make_task(setting, self.meter, autoreset_mode="SameStep"))
        spaces = {
            "observation_space": self.env.observation_space,
            "action_space": self.env.action_space,
        }
        model = SharedModel(setting, **spaces)
        self.agent = PPO(
            models={"policy": model, "value": model},
            memory=RandomMemory(
                memory_size=setting.steps, num_envs=setting.num_envs, device=setting.device
            ),
            cfg=PPO_CFG(
                rollouts=setting.steps,
                learning_epochs=setting.epochs,
                mini_batches=setting.minibatches,
                discount_factor=setting.gamma,
                gae_lambda=setting.gae_lambda,
                learning_rate=setting.learning_rate,
                grad_norm_clip=setting.max_grad_norm,
                ratio_clip=setting.clip_range,
                value_clip=0.0,
                entropy_loss_scale=setting.entropy_weight,
                value_loss_scale=setting.value_weight,
                experiment={"write_interval": 0, "checkpoint_interval": 0},  # type: ignore[arg-type]
            ),
            device=setting.device,
            **spaces,
        )
        self.meter.watch(self.agent, "update", "update")

    def train(self, iterations: int) -> None:
        """Go on for some rollouts and updates."""
        cfg: Any = {
            "timesteps": iterations * self.setting.steps,
            "headless": True,
            "disable_progressbar": True,
            "close_environment_at_exit": False,
        }
        SequentialTrainer(env=self.env, agents=self.agent, cfg=cfg).train()
