"""Train PPO of Tianshou on an entity task.

python examples/tianshou_ppo.py
python examples/tianshou_ppo.py --env Entity/CherryPick-v0
python examples/tianshou_ppo.py --steps 2000            # a look
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams

import entity_encoder.envs  # noqa: F401 (registers the tasks)
from entity_encoder.integrations.tianshou import (
    EntityCritic,
    EntityNet,
    entity_policy,
    normalise_between_rollouts,
)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, evaluate, and return the mean return."""
    parser = argparse.ArgumentParser(description="Train PPO of Tianshou.")
    parser.add_argument("--env", default="Entity/FloorIsLava-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=200, help="to evaluate in the end")
    parser.add_argument("--save", help="file to write")
    args = parser.parse_args(arguments)

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 (Tianshou shuffles minibatches with it)
    env = DummyVectorEnv([lambda: gymnasium.make(args.env)] * args.num_envs)
    env.seed(args.seed)
    one = gymnasium.make(args.env)
    schema = one.get_wrapper_attr("entity_schema")
    net = EntityNet(one.observation_space, schema=schema, d_model=64)
    algorithm: Any = PPO(
        policy=entity_policy(net, one.action_space),
        critic=EntityCritic(net),
        optim=AdamOptimizerFactory(lr=1e-3, eps=1e-5),
        max_grad_norm=0.5,
        ent_coef=0.01,
        max_batchsize=4096,
    )
    normalise_between_rollouts(algorithm)
    batch = args.num_envs * 32
    collector: Any = Collector(algorithm, env, VectorReplayBuffer(batch * 2, args.num_envs))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=max(args.steps // batch, 1) * batch,
            collection_step_num_env_steps=batch,
            update_step_num_repetitions=4,
            batch_size=batch // 4,
        )
    )
    if args.save:
        torch.save(algorithm.state_dict(), args.save)
    collector.reset()
    algorithm.policy.eval()
    result = collector.collect(n_episode=args.episodes)
    mean = float(np.mean(result.returns))
    print(f"mean return of {args.episodes} episodes: {mean:.3f}")
    return mean


if __name__ == "__main__":
    main()
