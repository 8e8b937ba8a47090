"""The environments of one's own keep their rules, and training takes them by their ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from entity_encoder.agents.cli import main
from entity_encoder.agents.cli.tasks import describe_task
from entity_encoder.envs import check_entity_env


@pytest.fixture
def harvest() -> Iterator[Any]:
    from examples import own_env

    yield own_env
    gymnasium.registry.pop("Harvest-v0", None)
    sys.modules.pop("examples.own_env", None)


def test_harvest_keeps_every_promise_of_an_entity_environment(harvest: Any) -> None:
    report = check_entity_env(harvest.Harvest(num_envs=5, max_fruit=3, wasps=2))
    assert report.holes
    assert report.episodes >= 5


def test_fruit_in_reach_is_picked_and_a_wasp_in_reach_ends_it(harvest: Any) -> None:
    env = harvest.Harvest(num_envs=2, max_fruit=2, wasps=1)
    env.reset(seed=0)
    state = {
        **env.state,
        "picker": torch.full((2, 1, 2), 0.5),
        "fruit": torch.tensor([[[0.5, 0.56], [0.9, 0.1]]] * 2),  # 0.01 above the place moved to
        "ripe": torch.ones(2, 2, dtype=torch.bool),
        "count": torch.tensor([2, 2]),
        "wasp": torch.tensor([[[0.95, 0.95]], [[0.5, 0.55]]]),
    }

    class Calm:
        """Wasps stay where they are."""

        def uniform(self, *shape: int, **bounds: float) -> torch.Tensor:
            return torch.zeros(2, *shape)

    following, reward, terminated, _ = env.transition(state, torch.tensor([0, 0]), Calm())
    np.testing.assert_allclose(following["picker"][0], [[0.5, 0.55]])
    assert reward.tolist() == [0.5, 0.5]
    assert terminated.tolist() == [False, True]
    assert following["ripe"].tolist() == [[False, True]] * 2


def test_harvest_trains_and_is_filmed_from_the_command_line(
    harvest: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    options = ["--num-envs", "4", "--rollout-steps", "8", "--eval-episodes", "2"]
    words = ["train", "examples.own_env:Harvest-v0", "--total-steps", "64", "--run-dir", run]
    short = ["--env-arg", "max_episode_steps=7"]
    assert main([*words, *options, *short, "--film-every", "64"]) == 0
    shown = capsys.readouterr()
    assert "Harvest-v0: trained for 64 steps" in shown.out
    assert "reference" not in shown.out  # it has no scripted policy
    assert describe_task("Harvest-v0").reference_return is None
    video = str(tmp_path / "play.gif")
    words = ["eval", run, "--episodes", "2", "--env-arg", "max_fruit=20"]
    assert main([*words, "--video", video, "--video-episodes", "1"]) == 0
    assert Path(video).stat().st_size > 1000
