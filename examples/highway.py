"""Compare three feature extractors on highway-env: ours, its attention script's, a flat MLP.

python examples/highway.py                                     # 3 seeds: about an hour of one core
python examples/highway.py --steps 512 --seeds 1 --episodes 2  # a look
python examples/highway.py --env intersection-v0 --json intersection.json

Everything but the extractor is the same: PPO of Stable-Baselines3 with the settings of
highway-env's script `sb3_highway_ppo_transformer.py` (4 environments, 128 steps, minibatches of
64, 10 epochs, learning rate 2e-3), the same steps, the same seeds, rows sorted by distance for
all. On highway-v0 the road is the script's too: 15 cars, 10 rows of 7 features, 80 decisions.

- `entity`: this package, `core="ego"`: the observer asks the others, one layer, 2 heads, d = 64.
- `script`: what that script does: two embeddings, one query of the observer with 2 heads, no norm
  and no MLP behind; it takes the mask from column 0.
- `mlp`: all rows side by side through two layers of 256.
- `random`: random actions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn

from entity_encoder.agents.statistics import mean_of
from entity_encoder.envs.bridges.highway import HighwayEntities, make_highway
from entity_encoder.integrations.sb3 import NormalisationCallback, policy_kwargs

ARMS = ("entity", "script", "mlp", "random")
FEATURES = ["presence", "x", "y", "vx", "vy", "cos_h", "sin_h"]
CONFIGS: dict[str, dict[str, Any]] = {
    "highway-v0": {
        "lanes_count": 3,
        "vehicles_count": 15,
        "policy_frequency": 2,
        "duration": 40,
        "observation": {"type": "Kinematics", "vehicles_count": 10, "features": FEATURES},
    },
}


class Rows(HighwayEntities):
    """The original's own array of rows, as quickly computed as for the others."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = env.observation_space

    def observation(self, rows: np.ndarray) -> Any:
        """Return the rows as they are."""
        return rows


class ScriptAttention(BaseFeaturesExtractor):
    """The observer's query over all vehicles, (B, N, F) to (B, 64), as highway-env's script has it.

    Args:
        observation_space: Box (N, F), the observer in row 0, presence in column 0.
        width: Width of embeddings and result.
        heads: Heads of the one query.
    """

    def __init__(self, observation_space: spaces.Box, width: int = 64, heads: int = 2) -> None:
        super().__init__(observation_space, width)
        features = observation_space.shape[1]
        self.heads = heads
        self.embed_ego, self.embed_other = (
            nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
            for _ in range(2)
        )
        self.query, self.key, self.value, self.combine = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return (B, width): the mean of what the observer is and what it read."""
        ego = self.embed_ego(rows[:, :1])  # (B, 1, D)
        everybody = torch.cat([ego, self.embed_other(rows[:, 1:])], dim=1)  # (B, N, D)
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, *, D / H)
            for layer, x in ((self.query, ego), (self.key, everybody), (self.value, everybody))
        )
        present = rows[:, None, None, :, 0] >= 0.5  # (B, 1, 1, N)
        read = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=present)
        combined: Tensor = self.combine(read.transpose(1, 2).flatten(1))
        return (combined + ego[:, 0]) / 2


def make_env(arm: str, env_id: str) -> gymnasium.Env[Any, Any]:
    """Make one environment that observes what an arm reads."""
    config = json.loads(json.dumps(CONFIGS.get(env_id, {})))  # highway-env edits what it is given
    env = make_highway(env_id, config=config)
    return Monitor(
        env if arm in ("entity", "random") else Rows(env.env), info_keywords=("crashed",)
    )


def make_model(arm: str, env: DummyVecEnv, seed: int) -> PPO:
    """Return the PPO of the script with an arm's extractor."""
    if arm == "entity":
        # The same heads as behind the script's extractor: two layers of 64 each.
        heads = {"pi": [64, 64], "vf": [64, 64]}
        encoder: dict[str, Any] = {
            "core": "ego",
            "pooling": "ego",
            "ego": "ego",
            "n_layers": 1,
            "n_heads": 2,
        }
        kwargs = policy_kwargs(env, net_arch=heads, d_model=64, **encoder)
    elif arm == "script":
        kwargs = {"features_extractor_class": ScriptAttention}
    else:
        kwargs = {"net_arch": [256, 256]}
    settings: dict[str, Any] = {"n_steps": 512 // env.num_envs, "batch_size": 64}
    settings |= {"learning_rate": 2e-3, "seed": seed, "device": "cpu", "policy_kwargs": kwargs}
    return PPO("MultiInputPolicy" if arm == "entity" else "MlpPolicy", env, **settings)


def run_arm(arm: str, env_id: str, *, seed: int, steps: int, episodes: int) -> dict[str, Any]:
    """Train an arm, then play `episodes` episodes with its likeliest actions."""
    start = time.process_time()
    last_hundred = None
    stage = make_env(arm, env_id)
    act: Callable[[Any], Any]
    if arm == "random":
        rng, choices = np.random.default_rng(seed), stage.action_space
        assert isinstance(choices, spaces.Discrete)
        act = lambda _: rng.integers(choices.n)
    else:
        env = DummyVecEnv([lambda: make_env(arm, env_id)] * 4)
        model = make_model(arm, env, seed)
        model.learn(steps, callback=NormalisationCallback() if arm == "entity" else None)
        if model.ep_info_buffer:
            last_hundred = float(np.mean([entry["r"] for entry in model.ep_info_buffer]))
        env.close()
        act = lambda observation: model.predict(observation, deterministic=True)[0]
    played = evaluate(act, stage, episodes)
    row = {"arm": arm, "env": env_id, "seed": seed, "steps": 0 if arm == "random" else steps}
    return {**row, "train": last_hundred, **played, "cpu_seconds": time.process_time() - start}


def evaluate(
    act: Callable[[Any], Any], env: gymnasium.Env[Any, Any], episodes: int
) -> dict[str, Any]:
    """Play episodes, the same ones for every arm."""
    returns, lengths, crashes = [], [], []
    for episode in range(episodes):
        observation, _ = env.reset(seed=10_000 + episode)
        total, length, ended = 0.0, 0, False
        while not ended:
            observation, reward, terminated, truncated, info = env.step(act(observation))
            total, length, ended = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
        crashes.append(bool(info["crashed"]))
    env.close()
    return {
        "return": float(np.mean(returns)),
        "return_sd": float(np.std(returns)),
        "length": float(np.mean(lengths)),
        "crashed": float(np.mean(crashes)),
        "episodes": episodes,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Show each arm: mean over seeds with its 95 % interval, and every seed by itself."""
    lines = ["| arm | return, 95 % interval over seeds | each seed | length | crashed | CPU s |"]
    lines.append("|---|---|---|---|---|---|")
    for arm in ARMS:
        mine = [row for row in rows if row["arm"] == arm]
        if not mine:
            continue
        mean = mean_of([row["return"] for row in mine])
        interval = f" ({mean.low:.1f} to {mean.high:.1f})" if mean.count > 1 else " (one seed)"
        seeds = ", ".join(f"{row['return']:.1f} (sd {row['return_sd']:.1f})" for row in mine)
        length, crashed, seconds = (
            float(np.mean([row[key] for row in mine]))
            for key in ("length", "crashed", "cpu_seconds")
        )
        lines.append(
            f"| {arm} | {mean.mean:.1f}{interval} | {seeds} | {length:.1f} | {crashed:.0%} "
            f"| {seconds:.0f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Run all arms on all seeds, print the table, and return its rows."""
    parser = argparse.ArgumentParser(description="Compare extractors on highway-env.")
    parser.add_argument("--env", default="highway-v0", help="for instance intersection-v0")
    parser.add_argument("--steps", type=int, default=9_000)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 1 on")
    parser.add_argument("--episodes", type=int, default=20, help="to evaluate, for each seed")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument(
        "--json", type=Path, help="file for the rows; those in it are not run again"
    )
    parser.add_argument("--table", type=Path, help="file for the table")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if args.json is not None and args.json.exists():
        rows = json.loads(args.json.read_text())
    for seed in range(1, args.seeds + 1):
        for arm in args.arms:
            steps = 0 if arm == "random" else args.steps
            key = {"arm": arm, "env": args.env, "seed": seed, "steps": steps}
            if any(key.items() <= row.items() for row in rows):
                continue
            row = run_arm(arm, args.env, seed=seed, steps=args.steps, episodes=args.episodes)
            rows.append(row)
            print(f"{arm}, seed {seed}: return {row['return']:.1f}", flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))
    if args.table is not None:
        args.table.write_text(table(rows) + "\n")
    return rows


if __name__ == "__main__":
    main()
