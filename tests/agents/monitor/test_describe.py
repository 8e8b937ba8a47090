"""The page that says how a run can be repeated."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from entity_encoder.agents.monitor import describe_run, settings
from entity_encoder.agents.monitor.describe import git_revision, versions


@dataclasses.dataclass
class Inner:
    width: int = 7


@dataclasses.dataclass
class Outer:
    rate: float = 0.5
    inner: Inner = dataclasses.field(default_factory=Inner)
    env_kwargs: dict[str, object] = dataclasses.field(default_factory=lambda: {"mines": 5})
    empty: dict[str, object] = dataclasses.field(default_factory=dict)


def test_nested_settings_get_dotted_names() -> None:
    expected = {"rate": 0.5, "inner.width": 7, "env_kwargs.mines": 5, "empty": {}}
    assert settings(Outer()) == expected


def test_versions_name_what_shapes_a_result() -> None:
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__


def test_revision_is_marked_when_files_differ(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    clean = git_revision(tmp_path)
    assert len(clean) == 12
    (tmp_path / "file").write_text("2")
    assert git_revision(tmp_path) == f"{clean}-dirty"


def test_without_a_repository_or_without_git_the_revision_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_revision(tmp_path) == "unknown"
    monkeypatch.setenv("PATH", "")
    assert git_revision(tmp_path) == "unknown"


def test_the_page_is_a_table_that_a_bar_cannot_break() -> None:
    page = describe_run({"note": "a|b", "rate": 0.25})
    assert "| note | a/b |" in page
    assert "| rate | 0.25 |" in page
    assert f"| torch | {torch.__version__} |" in page
