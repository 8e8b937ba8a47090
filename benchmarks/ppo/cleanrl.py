"""A loop in the style of CleanRL's `ppo.py`: everything in sight, tensors stored as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.ppo.network import PaddedActorCritic
from benchmarks.ppo.setting import Meter, Setting, make_task

__all__ = ["Loop"]

KEYS = ("entities", "entities_mask")


class Loop:
    """PPO in one class, on arrays of a vector environment.

    Args:
        setting: Sizes and coefficients.
    """

    def __init__(self, setting: Setting) -> None:
        self.meter = Meter()
        self.setting = setting
        torch.manual_seed(setting.seed)
        self.random = np.random.default_rng(setting.seed)
        self.envs = make_task(setting, self.meter, autoreset_mode="SameStep")
        self.agent = PaddedActorCritic(setting).to(setting.device)
        self.optimiser = torch.optim.Adam(
            self.agent.parameters(), lr=setting.learning_rate, eps=setting.adam_epsilon
        )
        shape = (setting.steps, setting.num_envs)
        space: Any = self.envs.single_observation_space
        where: Any = {"device": setting.device}
        self.seen = {
            "entities": torch.zeros(*shape, *space["entities"].shape, **where),
            "entities_mask": torch.zeros(
                *shape, *space["entities_mask"].shape, dtype=torch.bool, **where
            ),
        }
        self.action = torch.zeros(*shape, dtype=torch.int64, **where)
        self.log_prob, self.value, self.reward, self.done = (
            torch.zeros(*shape, **where) for _ in range(4)
        )
        self.next_done = torch.zeros(setting.num_envs, **where)
        self.observation = self._tensors(self.envs.reset(seed=setting.seed)[0])
        self._update = self.meter.wrap(self.update, "update")

    def _tensors(self, observation: dict[str, Any]) -> dict[str, Tensor]:
        found = {k: torch.as_tensor(observation[k], device=self.setting.device) for k in KEYS}
        return {**found, "entities_mask": found["entities_mask"].bool()}

    def train(self, iterations: int) -> None:
        """Go on for some rollouts and updates."""
        for _ in range(iterations):
            self.collect()
            self._update()

    def collect(self) -> None:
        """Fill the storage."""
        for t in range(self.setting.steps):
            for key in KEYS:
                self.seen[key][t] = self.observation[key]
            self.done[t] = self.next_done
            with torch.no_grad():
                logits, value = self.agent(*self.observation.values())
                policy = Categorical(logits=logits)
                action = policy.sample()
                self.action[t], self.value[t] = action, value
                self.log_prob[t] = policy.log_prob(action)
            following, reward, terminated, truncated, _ = self.envs.step(action.cpu().numpy())
            self.reward[t] = torch.as_tensor(reward, device=self.setting.device)
            ended = np.logical_or(terminated, truncated).astype(np.float32)
            self.next_done = torch.as_tensor(ended, device=self.setting.device)
            self.observation = self._tensors(following)

    def advantages(self) -> Tensor:
        """Return generalised advantage estimates, (T, E)."""
        s = self.setting
        with torch.no_grad():
            next_value = self.agent(*self.observation.values())[1]
        advantage, last = torch.zeros_like(self.reward), torch.zeros_like(next_value)
        for t in reversed(range(s.steps)):
            final = t == s.steps - 1
            alive = 1.0 - (self.next_done if final else self.done[t + 1])
            following = next_value if final else self.value[t + 1]
            delta = self.reward[t] + s.gamma * following * alive - self.value[t]
            advantage[t] = last = delta + s.gamma * s.gae_lambda * alive * last
        return advantage

    def update(self) -> None:
        """Make all passes over the storage."""
        advantage = self.advantages()
        self.target = (advantage + self.value).flatten()
        self.advantage = advantage.flatten()
        places = np.arange(self.setting.rollout)
        for _ in range(self.setting.epochs):
            self.random.shuffle(places)
            for first in range(0, self.setting.rollout, self.setting.minibatch):
                loss = self.loss(places[first : first + self.setting.minibatch])
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), self.setting.max_grad_norm)
                self.optimiser.step()

    def loss(self, rows: np.ndarray) -> Tensor:
        """Return the loss of a minibatch."""
        s = self.setting
        logits, value = self.agent(*(self.seen[key].flatten(0, 1)[rows] for key in KEYS))
        policy = Categorical(logits=logits)
        log_prob = policy.log_prob(self.action.flatten()[rows])
        ratio = (log_prob - self.log_prob.flatten()[rows]).exp()
        weight = self.advantage[rows]
        if s.normalise_advantages:
            weight = (weight - weight.mean()) / (weight.std() + 1e-8)
        clipped = ratio.clamp(1 - s.clip_range, 1 + s.clip_range)
        policy_loss = torch.max(-weight * ratio, -weight * clipped).mean()
        value_loss = (value - self.target[rows]).square().mean()
        entropy = policy.entropy().mean()
        return policy_loss + s.value_weight * value_loss - s.entropy_weight * entropy
