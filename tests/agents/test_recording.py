"""Frames of whole episodes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.agents.environments import Environments
from entity_encoder.agents.evaluate import reference_policy
from entity_encoder.agents.recording import make_visible, record
from entity_encoder.agents.workers import FactoryVectorEnv

LAVA = "Entity/FloorIsLava-v0"


class Film(gymnasium.Env[Any, Any]):
    """Three steps an episode; the frame's shade counts all steps and resets."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            dot=spaces.Box(0, 1, (2, 1), np.float32), dot_mask=spaces.MultiBinary(2)
        )
        self.action_space = spaces.Discrete(2)
        self.render_mode = "rgb_array"
        self.shade = self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.shade, self.time = self.shade + 1, 0
        return {"dot": np.zeros((2, 1), np.float32), "dot_mask": np.ones(2, np.int8)}, {}

    def step(self, action: Any) -> Any:
        self.time, self.shade = self.time + 1, self.shade + 1
        observation = {"dot": np.zeros((2, 1), np.float32), "dot_mask": np.ones(2, np.int8)}
        return observation, 0.0, self.time == 3, False, {}

    def render(self) -> Any:
        return np.full((5, 7, 3), self.shade, np.uint8)


def stay(observation: dict[str, Any]) -> np.ndarray:
    return np.zeros(1, np.int64)


def test_a_task_shows_its_first_and_its_last_state() -> None:
    envs = make_visible(LAVA, {"shuffle_slots": False})
    frames, result = record(reference_policy(envs), envs, episodes=2, seed=3)
    # NEXT_STEP: first state, last state; reset; first state of the next is the same picture
    assert envs.mode is AutoresetMode.NEXT_STEP
    assert result is not None
    assert [episode.length for episode in result.episodes] == [1, 1]
    assert len(frames) == 4
    assert all(frame.dtype == np.uint8 and frame.ndim == 3 for frame in frames)
    assert (frames[0] != frames[1]).any()


def test_an_environment_that_resets_at_once_shows_no_frame_of_the_next_episode() -> None:
    frames, _ = record(stay, Environments(FactoryVectorEnv([Film])), episodes=2)
    # 1 reset, 2, 3; the third step resets (5, after 4): the second episode begins; 6, 7; cut
    assert [int(frame[0, 0, 0]) for frame in frames] == [1, 2, 3, 5, 6, 7]


def test_a_long_film_is_cut() -> None:
    frames, result = record(stay, Environments(FactoryVectorEnv([Film])), max_frames=2)
    assert len(frames) == 2
    assert result is None


def test_pictures_may_be_drawn_by_somebody_else() -> None:
    def draw(envs: Environments) -> np.ndarray:
        return np.full((4, 4, 3), len(envs.observation), np.uint8)

    frames, _ = record(stay, Environments(FactoryVectorEnv([Film])), draw=draw)
    assert len(frames) == 3
    assert all((frame == 2).all() for frame in frames)  # dot and dot_mask


def test_one_environment_is_filmed_at_a_time() -> None:
    with pytest.raises(ValueError, match="num_envs must be 1 to record an episode, got 3"):
        record(stay, Environments(FactoryVectorEnv([Film] * 3)))


def test_an_environment_that_draws_nothing_is_named() -> None:
    class Blind(Film):
        def render(self) -> Any:
            return None

    with pytest.raises(
        ValueError,
        match=r"environment must draw frames to be recorded, got None; make it .*rgb_array",
    ):
        record(stay, Environments(FactoryVectorEnv([Blind])))
