"""The benchmark of environments times the same task in both forms, and its command works."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from benchmarks import envs
from benchmarks.plain_minefield import PlainMinefield
from entity_encoder.envs import TASKS


def test_single_environments_play_what_the_batch_plays() -> None:
    batch: Any = gymnasium.make_vec("Entity/Minefield-v0", num_envs=3)
    single = SyncVectorEnv([partial(envs.make_single, "Minefield")] * 3)
    ours, theirs = batch.reset(seed=5)[0], single.reset(seed=5)[0]
    for action in ([1, 0, 2], [1, 1, 0]):
        for key, value in theirs.items():
            assert np.array_equal(value, ours[key])
        (ours, *results, _), (theirs, *expected, _) = batch.step(action), single.step(action)
        assert all(map(np.array_equal, results, expected))


def test_the_plain_minefield_has_the_same_rules() -> None:
    batch: Any = gymnasium.make_vec("Entity/Minefield-v0", num_envs=30, max_episode_steps=60)
    batch.reset(seed=0)
    alone = [PlainMinefield(max_episode_steps=60) for _ in range(30)]
    for row, env in enumerate(alone):
        env.reset(seed=0)
        state = {key: value[row] for key, value in batch.state.items()}
        vehicle = np.array([float(state[key]) for key in ("x", "y", "heading")])
        target, mine = (state[key].numpy().copy() for key in ("target", "mine"))
        env.place(vehicle, target, mine, state["mine_present"].numpy().astype(np.int8))
    torch.manual_seed(0)
    running = np.ones(30, bool)
    while running.any():
        action = torch.where(torch.rand(30) < 0.2, 0, batch.reference_policy(batch.state)).numpy()
        observation, *results, _ = batch.step(action)
        for row in running.nonzero()[0].tolist():
            single, *expected, _ = alone[row].step(action[row])
            assert [float(values[row]) for values in results] == [float(x) for x in expected]
            for key, value in single.items():
                np.testing.assert_allclose(observation[key][row], value, atol=1e-4)
        running &= ~(results[1] | results[2])


def test_the_plain_minefield_draws_layouts_as_the_task_does() -> None:
    env = PlainMinefield(max_mines=20)
    check_env(env, skip_render_check=True)
    counts = []
    for seed in range(300):
        observation, _ = env.reset(seed=seed)
        mines = observation["mine"][observation["mine_mask"] > 0]
        points = np.concatenate((observation["vehicle"][:, :2], observation["target"], mines))
        apart = np.linalg.norm(points[:, None] - points, axis=2)
        assert (apart[2:] + 15 * np.eye(len(points))[2:] >= 15).all()
        counts.append(len(mines))
    batch: Any = gymnasium.make_vec("Entity/Minefield-v0", num_envs=2000, max_mines=20)
    expected = batch.reset(seed=0)[0]["mine_mask"].sum(1)
    assert abs(np.mean(counts) - expected.mean()) < 4 * expected.std() / 300**0.5


def test_seconds_are_those_of_one_step_of_one_environment() -> None:
    batch: Any = gymnasium.make_vec("Entity/Count-v0", num_envs=7)
    stepper = envs.Stepper(batch, warm_up=2)
    calls: list[int] = []
    step, after = stepper.run(0.0, least=13, after=lambda: calls.append(0))
    assert len(calls) == 13
    assert 0 < step * 7 < 1
    assert 0 < after < step
    assert stepper.run(0.0)[1] == 0.0


def test_a_row_holds_speeds_and_their_ratio() -> None:
    row = envs.measure("Triage", 5, "gymnasium.make", 3, rounds=2, budget=0.01)
    assert (row.task, row.num_envs, row.sync_envs) == ("Triage", 5, 3)
    assert row.without_observation > row.with_observation > 0
    assert row.times_sync == pytest.approx(row.with_observation / row.sync)


def test_the_command_writes_one_flat_object_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(envs, "SIZES", (1, 2))
    file = tmp_path / "envs.json"
    rows = envs.main(["Xor", "--budget", "0", "--rounds", "1", "--json", str(file)])
    stored = json.loads(file.read_text())
    assert [(row["task"], row["num_envs"], row["sync_envs"]) for row in stored] == [
        ("Xor", 1, 1),
        ("Xor", 2, 2),
    ]
    assert len(capsys.readouterr().out.splitlines()) == len(rows) == 2
    with pytest.raises(SystemExit):
        envs.main(["Chess"])
    assert f"TASK must be among {', '.join(TASKS)}, got Chess" in capsys.readouterr().err
