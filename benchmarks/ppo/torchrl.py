"""TorchRL with its collector, its advantage module and its clipped loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import ActorValueOperator, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from benchmarks.ppo.network import PaddedActorCritic, PaddedEncoder
from benchmarks.ppo.setting import Meter, Setting, make_task

__all__ = ["TorchRL"]


class AnyLead(nn.Module):
    """Flatten the leading dimensions, which the advantage module makes two of."""

    def __init__(self, encoder: PaddedEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, entities: Tensor, mask: Tensor) -> Tensor:
        """Map (..., N, F) and (..., N) to (..., D)."""
        lead = mask.shape[:-1]
        out = self.encoder(entities.flatten(0, -3), mask.flatten(0, -2))
        return out.view(*lead, -1)


class TorchRL:
    """TorchRL's parts, put together as in its PPO tutorial.

    Args:
        setting: Sizes and coefficients.
    """

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(setting.seed)
        self.meter = Meter()
        self.setting = setting
        envs = make_task(setting, self.meter, autoreset_mode="Disabled")
        env = GymWrapper(envs, categorical_action_encoding=True, device=setting.device)
        env.set_seed(setting.seed)
        network = PaddedActorCritic(setting).to(setting.device)
        keys = ["entities", "entities_mask"]
        policy = ProbabilisticActor(
            TensorDictModule(network.actor, in_keys=["pooled"], out_keys=["logits"]),
            in_keys=["logits"],
            distribution_class=Categorical,
            return_log_prob=True,
        )
        model = ActorValueOperator(
            TensorDictModule(AnyLead(network.encoder), in_keys=keys, out_keys=["pooled"]),
            policy,
            ValueOperator(network.critic, in_keys=["pooled"]),
        )
        actor, critic = model.get_policy_operator(), model.get_value_operator()
        self.gae = GAE(
            gamma=setting.gamma,
            lmbda=setting.gae_lambda,
            value_network=critic,
            deactivate_vmap=True,
        )
        self.loss = ClipPPOLoss(
            actor,
            critic,
            clip_epsilon=setting.clip_range,
            entropy_coeff=setting.entropy_weight,
            critic_coeff=setting.value_weight,
            loss_critic_type="l2",
            normalize_advantage=setting.normalise_advantages,
        )
        self.optimiser = torch.optim.Adam(
            self.loss.parameters(), lr=setting.learning_rate, eps=setting.adam_epsilon
        )
        collector = Collector(
            env,
            actor,
            frames_per_batch=setting.rollout,
            total_frames=-1,
            auto_register_policy_transforms=False,
        )
        self.rollouts: Iterator[Any] = iter(collector)
        self._update = self.meter.wrap(self.update, "update")

    def train(self, iterations: int) -> None:
        """Go on for some rollouts and updates."""
        for _ in range(iterations):
            self._update(next(self.rollouts))

    def update(self, data: Any) -> None:
        """Make all passes over a rollout."""
        with torch.no_grad():
            self.gae(data)
        rows = data.reshape(-1)
        for _ in range(self.setting.epochs):
            for index in torch.randperm(self.setting.rollout).split(self.setting.minibatch):
                losses = self.loss(rows[index])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                self.optimiser.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(self.loss.parameters(), self.setting.max_grad_norm)
                self.optimiser.step()
