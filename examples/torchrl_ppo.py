"""Train PPO of TorchRL on an entity task.

python examples/torchrl_ppo.py
python examples/torchrl_ppo.py --env Entity/CherryPick-v0
python examples/torchrl_ppo.py --steps 2000             # a look
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import gymnasium
import torch
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.objectives import ClipPPOLoss

import entity_encoder.envs  # noqa: F401 (registers the tasks)
from entity_encoder.integrations.torchrl import EntityActorCritic

ROLLOUT = 32  # steps of every environment between two updates


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and return the mean return of the episodes of the last rollouts."""
    parser = argparse.ArgumentParser(description="Train PPO of TorchRL.")
    parser.add_argument("--env", default="Entity/FloorIsLava-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", help="file to write")
    args = parser.parse_args(arguments)

    torch.manual_seed(args.seed)
    envs = gymnasium.make_vec(args.env, args.num_envs, autoreset_mode="Disabled")
    env = TransformedEnv(GymWrapper(envs, categorical_action_encoding=True), RewardSum())
    env.set_seed(args.seed)
    model = EntityActorCritic.for_env(env, d_model=64)
    advantage = model.gae(gamma=0.99, lmbda=0.95)
    loss = ClipPPOLoss(
        model.policy,
        model.value_head,
        entropy_coeff=0.01,
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-3, eps=1e-5)
    frames = args.num_envs * ROLLOUT
    iterations = max(args.steps // frames, 1)
    returns: list[float] = []
    collector = Collector(
        env,
        model.policy,
        frames_per_batch=frames,
        total_frames=frames * iterations,
        auto_register_policy_transforms=False,
    )
    for iteration, data in enumerate(collector):  # data: (envs, time)
        with torch.no_grad():
            advantage(data)
        rows = data.reshape(-1)
        for _ in range(4):
            for index in torch.randperm(frames).split(frames // 4):
                losses = loss(rows[index])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimiser.zero_grad()
                total.backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimiser.step()
        model.update_statistics(data)  # after learning, before the next rollout
        ended = data["next", "done"]
        returns += data["next", "episode_reward"][ended].tolist()
        if iteration % 10 == 0 or iteration == iterations - 1:
            recent = returns[-200:] or [float("nan")]
            print(f"{(iteration + 1) * frames} steps: return {sum(recent) / len(recent):.3f}")
    collector.shutdown()
    if args.save:
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, args.save)
    recent = returns[-200:] or [float("nan")]
    return sum(recent) / len(recent)


if __name__ == "__main__":
    main()
