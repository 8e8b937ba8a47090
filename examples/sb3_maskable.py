"""Train MaskablePPO of sb3-contrib, with the action masks that the observation holds.

    python examples/sb3_maskable.py
    python examples/sb3_maskable.py --steps 2000            # a look

`NoLava` below is how an environment of yours gets a mask: one more key in the observation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

import entity_encoder.envs  # noqa: F401 (registers the tasks)
from entity_encoder.envs.tasks.floor_is_lava import DIRECTIONS
from entity_encoder.integrations.sb3 import ActionMasks, NormalisationCallback, policy_kwargs


class NoLava(gymnasium.ObservationWrapper):
    """Forbid steps onto tiles that are seen to be lava."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        parts = dict(env.observation_space.spaces)  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**parts, "action_mask": spaces.MultiBinary(8)})

    def observation(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add the mask: 1 = legal."""
        legal = np.ones(8, dtype=np.int8)
        seen = observation["lava"][observation["lava_mask"] == 1] - observation["player"]
        for offset in seen.astype(int).tolist():
            if tuple(offset) in DIRECTIONS:  # the player has not moved yet
                legal[DIRECTIONS.index(tuple(offset))] = 0
        return {**observation, "action_mask": legal}


def make_env() -> gymnasium.Env[Any, Any]:
    """One environment, with the method that MaskablePPO calls."""
    return ActionMasks(NoLava(gymnasium.make("Entity/FloorIsLava-v0")))


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and return the mean return of the last episodes."""
    parser = argparse.ArgumentParser(description="Train MaskablePPO of sb3-contrib.")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)

    env = make_vec_env(make_env, args.num_envs, seed=args.seed)
    model = MaskablePPO(
        "MultiInputPolicy",
        env,
        policy_kwargs=policy_kwargs(env, d_model=64),
        n_steps=64,
        batch_size=args.num_envs * 64 // 4,
        n_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
        verbose=1,
    )
    model.learn(args.steps, callback=NormalisationCallback(), log_interval=10)
    assert model.ep_info_buffer is not None
    mean = float(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    print(f"mean return of the last {len(model.ep_info_buffer)} episodes: {mean:.3f}")
    env.close()
    return mean


if __name__ == "__main__":
    main()
