"""Failure cases of environments and vector environments, by their number."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from entity_encoder import EntityEncoder
from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.recording import make_visible
from entity_encoder.agents.workers import FactoryVectorEnv, WorkerError
from entity_encoder.envs import GraphToEntities, SequenceToEntities
from tests.agents.test_workers import Fragile
from tests.cases.toys import Counter, Toy, counters
from tests.envs.bridges.spaced import check_wrapped

ROOT = Path(__file__).parents[2]
POINTS = spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32), stack=True)
NODES = spaces.Graph(spaces.Box(-1, 1, (3,), np.float32), None)


class Sampled(gymnasium.Env[Any, Any]):
    """Shows samples of its space; an episode has five steps."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space: Any = space
        self.action_space: Any = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 5, False, {}


@pytest.mark.parametrize("shape", ["sequence", "graph"])
def test_gym_01_sets_of_any_size_reach_worker_processes(shape: str) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        if shape == "sequence":
            return SequenceToEntities(Sampled(POINTS), max_entities=40)
        return GraphToEntities(Sampled(NODES), max_nodes=40)

    env = FactoryVectorEnv([make] * 3, workers=2)
    try:
        observation, _ = env.reset(seed=0)
        for _ in range(3):
            observation, *_ = env.step(np.zeros(3, np.int64))
        assert observation in env.observation_space
        assert all(isinstance(value, np.ndarray) for value in observation.values())
        assert any(value.shape[:2] == (3, 40) for value in observation.values())
    finally:
        env.close()


def test_gym_05_a_fault_in_a_worker_arrives_whole_and_leaves_no_process() -> None:
    env = FactoryVectorEnv([lambda: Fragile("raise"), Fragile], workers=2)
    env.reset(seed=0)
    env.step(np.zeros(2, np.int64))
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"(?s)KeyError: 'a fault of the env.*environment 0"):
        env.step(np.zeros(2, np.int64))
    assert time.monotonic() - start < 5
    processes = [worker.process for worker in env._workers]
    env.close()
    assert processes
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_gym_07_lengths_and_returns_of_three_step_episodes_are_exact(
    mode: str,
) -> None:
    """Rewards 1 + 2 + 3: ours and gymnasium's statistics agree on every episode."""
    config = PPOConfig(num_envs=2, rollout_steps=13, total_steps=26)
    agent = PPO(counters([3, 3], mode), config, progress=False)
    agent.learn()
    found = [(episode.length, episode.total) for episode in agent.episodes.recent]
    assert len(found) >= 6
    assert set(found) == {(3, 6.0)}
    env = RecordEpisodeStatistics(counters([3, 3], mode))
    env.reset(seed=0)
    theirs: list[tuple[float, float]] = []
    for _ in range(13):
        *_, info = env.step(np.zeros(2, np.int64))
        if "episode" in info:
            over = info["_episode"]
            lengths, returns = info["episode"]["l"][over], info["episode"]["r"][over]
            theirs += list(zip(lengths.tolist(), returns.tolist(), strict=True))
    assert set(theirs) == {(3, 6.0)}


@pytest.mark.parametrize("env_id", ["Entity/Minefield-v0", "Entity/CherryPick-v0"])
def test_gym_12_episodes_after_an_autoreset_repeat_with_the_first_seed(env_id: str) -> None:
    def play(seeds: list[int | None]) -> list[np.ndarray]:
        env = gymnasium.make_vec(env_id, num_envs=2, max_episode_steps=3)
        found: list[np.ndarray] = []
        for seed in seeds:
            observation, _ = env.reset(seed=seed)
            for _ in range(20):
                action = observation.get("cherry_mask", np.ones((2, 3))).argmax(1)
                observation, *_ = env.step(action)
                found += [value.copy() for value in observation.values()]
        return found

    first, again = play([5, None]), play([5, None])
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    # Without a seed the stream goes on: the second half is not the first one again.
    half = len(first) // 2
    assert not all(np.array_equal(a, b) for a, b in zip(first[:half], first[half:], strict=True))


def test_gym_14_observations_have_the_declared_types_for_a_thousand_steps() -> None:
    made = [
        SequenceToEntities(Sampled(POINTS), max_entities=40),
        GraphToEntities(Sampled(NODES), max_nodes=40),
        gymnasium.make("Entity/Minefield-v0").unwrapped,
    ]
    for env in made:
        space = env.observation_space
        assert isinstance(space, spaces.Dict)
        if isinstance(env, gymnasium.Wrapper):
            check_wrapped(env)
        else:
            check_env(env, skip_render_check=True, skip_close_check=True)
        env.action_space.seed(0)
        observation, _ = env.reset(seed=0)
        for _ in range(1000):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            assert {k: v.dtype for k, v in observation.items()} == {
                k: s.dtype for k, s in space.spaces.items()
            }
            assert observation in space
            if terminated or truncated:
                env.reset()


class Blind(Toy):
    """Promises pictures and forgets the render mode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()


def test_gym_15_a_video_of_an_environment_without_pictures_fails_at_once() -> None:
    gymnasium.register("Blind-v0", entry_point=f"{__name__}:Blind")
    try:
        with pytest.raises(ValueError, match="rgb_array"):
            make_visible("Blind-v0")
    finally:
        del gymnasium.registry["Blind-v0"]


SPAWN = """
import multiprocessing

import gymnasium
import numpy as np

import entity_encoder.envs
from entity_encoder.agents.workers import FactoryVectorEnv
from tests.cases.toys import Toy


def make():
    return gymnasium.make("Mine-v0").unwrapped


gymnasium.register("Mine-v0", entry_point=Toy)

if __name__ == "__main__":
    slots = 1.0
    env = FactoryVectorEnv([make, lambda: Toy(pad_value=slots)], workers=2)
    observation, _ = env.reset(seed=0)
    env.close()
    print(observation["entities"].shape)
"""


def test_gym_17_factories_of_the_main_script_and_closures_reach_workers(tmp_path: Path) -> None:
    script = tmp_path / "own_script.py"
    script.write_text(SPAWN)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2, 6, 3)"


class Half(Counter):
    """Shows float16."""

    def __init__(self) -> None:
        super().__init__(3)
        self.observation_space = spaces.Dict(
            entities=spaces.Box(-np.inf, np.inf, (2, 1), np.float16), mask=spaces.MultiBinary(2)
        )

    def _observe(self) -> dict[str, Any]:
        shown = super()._observe()
        return {**shown, "entities": shown["entities"].astype(np.float16)}


def test_gym_25_half_precision_observations_reach_workers_and_encoder() -> None:
    env = FactoryVectorEnv([Half, Half], workers=2)
    try:
        env.reset(seed=0)
        observation, *_ = env.step(np.zeros(2, np.int64))
    finally:
        env.close()
    assert observation["entities"].dtype == np.float16
    assert observation["entities"][:, 0, 0].tolist() == [1, 1]
    here = SyncVectorEnv([Half, Half], autoreset_mode=AutoresetMode.SAME_STEP)
    encoder = EntityEncoder(here.single_observation_space, d_model=16, n_heads=2)
    assert bool(torch.isfinite(encoder(observation).pooled).all())
