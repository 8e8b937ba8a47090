"""Where runs go, and where checkpoints are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from entity_encoder.agents.cli.defaults import (
    DEFAULT_TASK,
    find_checkpoint,
    new_run_dir,
)
from entity_encoder.agents.cli.tasks import list_tasks


def test_the_default_task_exists() -> None:
    assert DEFAULT_TASK in list_tasks()


def test_runs_are_named_by_task_and_seed_and_never_twice(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        path = new_run_dir("Entity/FloorIsLava-v0", 7, tmp_path)
        path.mkdir()
        names.append(path.name)
    assert names == ["floorislava-seed7", "floorislava-seed7-2", "floorislava-seed7-3"]
    assert new_run_dir("module:Own-v12", 0, tmp_path).name == "own-seed0"
    assert new_run_dir("NoVersion", 0, tmp_path).name == "noversion-seed0"


def test_a_checkpoint_is_found_in_its_run_or_by_itself(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint" / "checkpoint.json").write_text("{}")
    assert find_checkpoint(tmp_path / "run") == tmp_path / "run" / "checkpoint"
    assert find_checkpoint(tmp_path / "run" / "checkpoint") == tmp_path / "run" / "checkpoint"
    with pytest.raises(FileNotFoundError, match=r"got '.*other', which does not exist"):
        find_checkpoint(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"got '.*', which holds none"):
        find_checkpoint(tmp_path)
