"""PPO in one file, to read and to change; nothing but the encoder, PyTorch and gymnasium.

python examples/cleanrl_style_ppo.py
python examples/cleanrl_style_ppo.py --env Entity/CherryPick-v0 --steps 200000
python examples/cleanrl_style_ppo.py --steps 4096       # a look
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

import entity_encoder.envs  # noqa: F401 (registers the tasks)
from entity_encoder import EntityEncoder
from entity_encoder.heads import make_action_head

GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.2, 0.01, 0.5


class Agent(nn.Module):
    """One pass of the encoder serves policy and value."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        schema = getattr(envs, "entity_schema", envs.single_observation_space)
        self.encoder = EntityEncoder(schema, d_model=64)
        self.actor = make_action_head(envs.single_action_space, self.encoder)
        self.critic = nn.Linear(self.encoder.output_dim, 1)

    def forward(self, observation: dict[str, Tensor]) -> tuple[Any, Tensor]:
        """Return the distribution over actions and the value (...)."""
        encoding = self.encoder(observation)
        return self.actor(encoding, observation), self.critic(encoding.pooled).squeeze(-1)


def to_tensors(observation: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Arrays to tensors, masks to bool; copies, so that the environment may reuse its arrays."""
    tensors = {key: torch.tensor(value) for key, value in observation.items()}
    return {key: x.bool() if key.endswith("mask") else x for key, x in tensors.items()}


def gae(reward: Tensor, value: Tensor, last_value: Tensor, done: Tensor) -> Tensor:
    """Return advantages (T, E); `reward` already holds the bootstrap of truncated episodes."""
    advantage = torch.zeros_like(reward)
    following, carried = last_value, torch.zeros_like(last_value)
    for t in reversed(range(len(reward))):
        # delta_t = r_t + gamma V(s_{t+1}) (1 - done) - V(s_t)
        alive = 1 - done[t].float()
        delta = reward[t] + GAMMA * following * alive - value[t]
        carried = delta + GAMMA * LAMBDA * alive * carried
        advantage[t], following = carried, value[t]
    return advantage


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and return the mean score of the last episodes (0 = random, 1 = reference)."""
    parser = argparse.ArgumentParser(description="PPO in one file.")
    parser.add_argument("--env", default="Entity/FloorIsLava-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    T, E = args.rollout, args.num_envs

    torch.manual_seed(args.seed)
    envs: Any = gymnasium.make_vec(args.env, E, autoreset_mode="SameStep")
    agent = Agent(envs)
    optimiser = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    observation = to_tensors(envs.reset(seed=args.seed)[0])
    agent.encoder.update_statistics(observation)
    iterations = max(args.steps // (T * E), 1)
    scores: list[float] = []

    for iteration in range(iterations):
        # Rollout ------------------------------------------------------------------------------
        stored: dict[str, list[Any]] = {
            key: [] for key in ("observation", "action", "log_prob", "value", "reward", "done")
        }
        for _ in range(T):
            with torch.no_grad():
                policy, value = agent(observation)
                action = policy.sample()
                log_prob = policy.log_prob(action)
            following, reward, terminated, truncated, infos = envs.step(
                policy.to_env(action).numpy()
            )
            reward = torch.tensor(reward, dtype=torch.float32)
            for env in np.flatnonzero(truncated & ~terminated):
                # The episode goes on without us: add the value of where it was cut.
                final = to_tensors({k: v[None] for k, v in infos["final_obs"][env].items()})
                with torch.no_grad():
                    reward[env] += GAMMA * agent(final)[1][0]
            done = torch.tensor(terminated | truncated)
            scores += infos["score"][infos["_score"]].tolist() if "score" in infos else []
            row = (observation, action, log_prob, value, reward, done)
            for column, entry in zip(stored.values(), row, strict=True):
                column.append(entry)
            observation = to_tensors(following)

        # Advantages ---------------------------------------------------------------------------
        batch = {k: torch.stack(v) for k, v in stored.items() if k != "observation"}  # (T, E, ...)
        with torch.no_grad():
            last_value = agent(observation)[1]
        advantage = gae(batch["reward"], batch["value"], last_value, batch["done"]).flatten()
        target = advantage + batch["value"].flatten()
        seen = {
            key: torch.stack([row[key] for row in stored["observation"]]).flatten(0, 1)
            for key in observation
        }
        action, log_prob = batch["action"].flatten(0, 1), batch["log_prob"].flatten()

        # Update -------------------------------------------------------------------------------
        for _ in range(args.epochs):
            for index in torch.randperm(T * E).chunk(args.minibatches):
                policy, value = agent({key: x[index] for key, x in seen.items()})
                ratio = (policy.log_prob(action[index]) - log_prob[index]).exp()
                weight = advantage[index]
                weight = (weight - weight.mean()) / (weight.std() + 1e-8)
                gain = torch.minimum(ratio * weight, ratio.clamp(1 - CLIP, 1 + CLIP) * weight)
                loss = -gain.mean() - ENTROPY * policy.entropy().mean()
                loss = loss + VALUE * (value - target[index]).square().mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
        agent.encoder.update_statistics(seen)  # after learning, so that the first ratio is 1

        if iteration % 10 == 0 or iteration == iterations - 1:
            recent = scores[-200:] or [float("nan")]
            print(f"{(iteration + 1) * T * E} steps: score {sum(recent) / len(recent):.3f}")
    envs.close()
    recent = scores[-200:] or [float("nan")]
    return sum(recent) / len(recent)


if __name__ == "__main__":
    main()
