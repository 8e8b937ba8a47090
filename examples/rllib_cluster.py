"""Train with RLlib, on this machine or on a Ray cluster, without a change.

Here, with two processes that act:

    python examples/rllib_cluster.py --env-runners 2

On a cluster (`ray start --head` on one machine, `ray start --address=...` on the others), where
every machine has `pip install "entity-encoder[rllib]"`:

    python examples/rllib_cluster.py --address auto --env-runners 64 --learners 4
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import ray
from ray.rllib.algorithms.ppo import PPOConfig

from entity_encoder.integrations.rllib import configure


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Train, print a line per iteration, and return the mean returns."""
    parser = argparse.ArgumentParser(description="Train with RLlib.")
    parser.add_argument("--env", default="entity_encoder.envs:Entity/FloorIsLava-v0")
    parser.add_argument("--address", help="of a Ray cluster; none starts one here")
    parser.add_argument("--env-runners", type=int, default=2, help="processes that act")
    parser.add_argument("--envs-per-runner", type=int, default=8)
    parser.add_argument("--learners", type=int, default=0, help="0: learn in this process")
    parser.add_argument("--gpus-per-learner", type=float, default=0)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--batch", type=int, default=2048, help="steps per learner and iteration")
    parser.add_argument("--checkpoint", help="folder to write at the end")
    args = parser.parse_args(arguments)

    if not ray.is_initialized():
        ray.init(address=args.address)
    config = PPOConfig().environment(args.env)
    config.env_runners(
        num_env_runners=args.env_runners, num_envs_per_env_runner=args.envs_per_runner
    )
    config.learners(num_learners=args.learners, num_gpus_per_learner=args.gpus_per_learner)
    config.training(
        lr=1e-3,
        train_batch_size_per_learner=args.batch,
        minibatch_size=args.batch // 4,
        num_epochs=4,
        entropy_coeff=0.01,
    )
    algorithm = configure(config, d_model=32, n_layers=1).build_algo()
    means = []
    for iteration in range(args.iterations):
        result = algorithm.train()
        means.append(float(result["env_runners"].get("episode_return_mean", float("nan"))))
        print(f"iteration {iteration + 1}: mean return {means[-1]:.3f}", flush=True)
    if args.checkpoint:
        print("checkpoint:", algorithm.save_to_path(args.checkpoint))
    algorithm.stop()
    return means


if __name__ == "__main__":
    main()
