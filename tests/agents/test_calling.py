"""Lines to copy say how the command line is called here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from entity_encoder.agents.calling import command


def test_commands_are_written_as_they_work_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert command() == "env/bin/python -m entity_encoder.agents"
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "entity-encoder").write_text("")
    assert command() == "env/bin/entity-encoder"
    monkeypatch.setattr(shutil, "which", lambda _: str(tmp_path / "env/bin/entity-encoder"))
    assert command() == "entity-encoder"
    monkeypatch.setattr(shutil, "which", lambda _: "/elsewhere/bin/entity-encoder")
    assert command() == "env/bin/entity-encoder"
