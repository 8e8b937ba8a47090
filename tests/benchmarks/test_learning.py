"""Claims about the learning benchmark: what it writes can be read back into its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import entity_encoder.envs  # noqa: F401  (registers the tasks)
from benchmarks.learning import __main__ as command
from benchmarks.learning import table, training
from benchmarks.learning.tasks import TASKS


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(training, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(table, "RUNS", tmp_path / "runs")
    return tmp_path


def result(seed: int, value: float) -> dict[str, Any]:
    played = {"return": {"mean": value}, "score": {"mean": value}}
    reference = {"return": {"mean": 0.5}, "score": {"mean": 0.5}}
    return {
        "task": "Triage",
        "seed": seed,
        "steps": 1000,
        "training_return": value,
        "deterministic": played,
        "reference": reference,
        "transfer": {"64": {"trained": played, "reference": reference}},
        "cpu_seconds": 7.0,
    }


def test_tables_join_seeds_and_compare_with_the_reference() -> None:
    for seed, value in ((1, 0.5), (2, 0.75)):
        path = table.result_path("Triage", seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result(seed, value)))
    text = table.write_table()
    (summary, moved) = [line for line in text.splitlines() if line.startswith("| Triage")]
    assert "0.625 (0.500 to 0.750)" in summary
    assert "| 1, 2 |" in summary
    assert moved == "| Triage | 64 | 0.625 (0.500 to 0.750) | 0.500 | 125% |"


def test_one_short_seed_is_trained_tried_on_more_entities_and_not_repeated(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["Triage", "--seeds", "1", "--steps", "4096", "--episodes", "8"]
    command.main(words)
    row = json.loads(table.result_path("Triage", 1).read_text())
    assert row["steps"] == 4096
    assert row["reference"]["return"]["mean"] == pytest.approx(1)
    assert set(row["transfer"]) == {"16", "32", "64"}
    assert 0 < row["transfer"]["64"]["trained"]["return"]["mean"] <= 1
    capsys.readouterr()
    command.main(words)
    assert "exists, skipped" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(TASKS))
def test_every_size_can_be_made(name: str) -> None:
    task = TASKS[name]
    for options in ({}, *task.larger.values()):
        kwargs = {**task.kwargs, **options}
        gymnasium.make_vec(f"Entity/{task.env}-v0", num_envs=1, **kwargs).close()


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(SystemExit):
        command.main(["Minefeld"])
