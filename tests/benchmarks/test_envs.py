"""The benchmark of environments times the same task in both forms, and its command works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks import envs
from entity_encoder.envs import TASKS


def test_single_environments_play_what_the_batch_plays() -> None:
    batch: Any = gymnasium.make_vec("Entity/Minefield-v0", num_envs=3)
    single = envs.make_sync("Minefield", 3)
    ours, theirs = batch.reset(seed=5)[0], single.reset(seed=5)[0]
    for action in ([1, 0, 2], [1, 1, 0]):
        for key, value in theirs.items():
            assert np.array_equal(value, ours[key])
        (ours, *results, _), (theirs, *expected, _) = batch.step(action), single.step(action)
        assert all(map(np.array_equal, results, expected))


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
    row = envs.measure("Triage", 5, 3, rounds=2, budget=0.01)
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
