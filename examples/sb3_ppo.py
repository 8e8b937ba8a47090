"""Train PPO of Stable-Baselines3 on an entity task.

python examples/sb3_ppo.py                              # a few minutes
python examples/sb3_ppo.py --env Entity/CherryPick-v0 --point   # choose an entity
python examples/sb3_ppo.py --steps 2000                 # a look
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

import entity_encoder.envs  # noqa: F401 (registers the tasks)
from entity_encoder.integrations.sb3 import (
    EntityPolicy,
    GymnasiumVecEnv,
    NormalisationCallback,
    policy_kwargs,
)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, evaluate, and return the mean return."""
    parser = argparse.ArgumentParser(description="Train PPO of Stable-Baselines3.")
    parser.add_argument("--env", default="Entity/FloorIsLava-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=200, help="to evaluate in the end")
    parser.add_argument("--point", action="store_true", help="the actions are entities")
    parser.add_argument("--save", help="file to write")
    args = parser.parse_args(arguments)

    envs = gymnasium.make_vec(args.env, args.num_envs, autoreset_mode="SameStep")
    env = VecMonitor(GymnasiumVecEnv(envs))
    model = PPO(
        EntityPolicy if args.point else "MultiInputPolicy",
        env,
        policy_kwargs=policy_kwargs(env, d_model=64),
        n_steps=32,
        batch_size=args.num_envs * 32 // 4,
        n_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
        verbose=1,
    )
    model.learn(args.steps, callback=NormalisationCallback(), log_interval=10)
    if args.save:
        model.save(args.save)
    returns, _ = evaluate_policy(
        model, env, n_eval_episodes=args.episodes, return_episode_rewards=True
    )
    mean = float(np.mean(returns))
    print(f"mean return of {len(returns)} episodes: {mean:.3f}")  # type: ignore[arg-type]
    env.close()
    return mean


if __name__ == "__main__":
    main()
