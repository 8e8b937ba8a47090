"""A single environment of your own: what an entity policy needs is in its observation space.

python examples/own_gymnasium_env.py                  # train, evaluate, film (a minute)
python examples/own_gymnasium_env.py --workers 2      # the same environments in two processes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image, ImageDraw

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.envs import check_entity_env

Observation = dict[str, np.ndarray]


class Rockfall(gymnasium.Env[Any, Any]):
    """Walk left and right under falling rocks; each step without a hit pays 1."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, slots: int = 12, render_mode: str | None = None) -> None:
        self.slots, self.render_mode = slots, render_mode
        self.action_space = spaces.Discrete(3)  # left, stay, right
        self.observation_space = spaces.Dict(
            {
                "walker": spaces.Box(0, 1, (1, 1), np.float32),  # x
                "walker_mask": spaces.MultiBinary(1),
                "rock": spaces.Box(0, 1.2, (slots, 3), np.float32),  # x, height, speed
                "rock_mask": spaces.MultiBinary(slots),  # 1 = a rock is falling
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin without rocks."""
        super().reset(seed=seed)
        self.steps, self.walker = 0, 0.5
        self.rocks = np.zeros((self.slots, 3), np.float32)
        self.falling = np.zeros(self.slots, bool)
        return self.observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Walk, let the rocks fall, and perhaps loosen another one."""
        self.steps += 1
        self.walker = float(np.clip(self.walker + 0.05 * (int(action) - 1), 0, 1))
        self.rocks[:, 1] -= self.rocks[:, 2]
        near = (self.rocks[:, 1] <= 0.05) & (np.abs(self.rocks[:, 0] - self.walker) < 0.07)
        hit = bool((self.falling & near).any())
        self.falling &= self.rocks[:, 1] > 0
        if not self.falling.all() and self.np_random.random() < 0.5:
            slot = int(self.np_random.choice(np.flatnonzero(~self.falling)))  # any free one
            self.rocks[slot] = self.np_random.random(), 1.2, self.np_random.uniform(0.03, 0.1)
            self.falling[slot] = True
        return self.observe(), float(not hit), hit, self.steps >= 100 and not hit, {}

    def observe(self) -> Observation:
        """Fill the tables; rows of free slots hold zeros, which nobody looks at."""
        return {
            "walker": np.array([[self.walker]], np.float32),
            "walker_mask": np.ones(1, np.int8),
            "rock": np.where(self.falling[:, None], self.rocks, 0).clip(0, 1.2).astype(np.float32),
            "rock_mask": self.falling.astype(np.int8),
        }

    def render(self) -> np.ndarray:
        """Draw the scene."""
        image = Image.new("RGB", (240, 240), "white")
        draw = ImageDraw.Draw(image)
        draw.rectangle((240 * self.walker - 8, 224, 240 * self.walker + 8, 240), fill="black")
        for x, height, _ in self.rocks[self.falling].tolist():
            draw.circle((240 * x, 240 - 200 * height), 6, fill="sienna")
        return np.asarray(image)


def main(arguments: Sequence[str] | None = None) -> float:
    """Check, train and evaluate; return the mean return."""
    parser = argparse.ArgumentParser(description="Train on an environment of one's own.")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--run-dir", help="folder for TensorBoard and checkpoints")
    args = parser.parse_args(arguments)

    print(check_entity_env(Rockfall()))
    config = PPOConfig(total_steps=args.steps, num_envs=16, workers=args.workers)
    agent = PPO([Rockfall] * 16, config, run_dir=args.run_dir).learn()
    result = agent.evaluate(32, env=[Rockfall] * 16)
    print(result)
    return result.returns.mean


if __name__ == "__main__":
    main()
