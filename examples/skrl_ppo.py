"""Train PPO of skrl on an entity task.

python examples/skrl_ppo.py
python examples/skrl_ppo.py --env Entity/CherryPick-v0
python examples/skrl_ppo.py --steps 2000                # a look
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed

import entity_encoder.envs  # noqa: F401 (registers the tasks)
from entity_encoder.integrations.skrl import EntityModel, normalise_between_rollouts, wrap_env

ROLLOUT = 32  # steps of every environment between two updates


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, evaluate, and return the mean return."""
    parser = argparse.ArgumentParser(description="Train PPO of skrl.")
    parser.add_argument("--env", default="Entity/FloorIsLava-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=200, help="to evaluate in the end")
    parser.add_argument("--save", help="file to write")
    args = parser.parse_args(arguments)

    set_seed(args.seed)
    env = wrap_env(gymnasium.make_vec(args.env, args.num_envs, autoreset_mode="SameStep"))
    model = EntityModel.for_env(env, d_model=64)
    experiment: Any = {"write_interval": 0, "checkpoint_interval": 0}
    agent = PPO(
        models={"policy": model, "value": model},
        memory=RandomMemory(memory_size=ROLLOUT, num_envs=args.num_envs),
        observation_space=env.observation_space,
        action_space=env.action_space,
        cfg=PPO_CFG(
            rollouts=ROLLOUT,
            learning_epochs=4,
            mini_batches=4,
            learning_rate=1e-3,
            entropy_loss_scale=0.01,
            value_loss_scale=0.5,
            experiment=experiment,
        ),
    )
    normalise_between_rollouts(agent)
    trainer: Any = {
        "timesteps": args.steps // args.num_envs,
        "headless": True,
        "disable_progressbar": None,  # none where there is no terminal
        "close_environment_at_exit": False,
    }
    SequentialTrainer(env=env, agents=agent, cfg=trainer).train()
    if args.save:
        agent.save(args.save)
    mean = evaluate(model, args.env, args.episodes)
    print(f"mean return of {args.episodes} episodes: {mean:.3f}")
    env.close()
    return mean


@torch.no_grad()
def evaluate(model: EntityModel, name: str, episodes: int) -> float:
    """Return the mean return of new episodes, with the likeliest actions."""
    env = wrap_env(gymnasium.make_vec(name, min(episodes, 32), autoreset_mode="SameStep"))
    observations, _ = env.reset()
    running = torch.zeros(env.num_envs, 1)
    returns: list[float] = []
    while len(returns) < episodes:
        _, outputs = model.act({"observations": observations}, role="policy")
        observations, reward, terminated, truncated, _ = env.step(outputs["mean_actions"])
        running += reward
        ended = terminated | truncated
        returns += running[ended].tolist()
        running[ended] = 0
    env.close()
    return sum(returns) / len(returns)


if __name__ == "__main__":
    main()
