"""Points that a resumed run logs again leave the files themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from entity_encoder.agents.monitor import Monitor
from entity_encoder.agents.monitor.purge import purge_files


def logged(file: Path) -> list[tuple[str, int]]:
    events = EventFileLoader(str(file)).Load()
    return [(v.tag, e.step) for e in events for v in e.summary.value if "custom" not in v.tag]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with Monitor(tmp_path) as monitor:
        for step in (1, 4, 7):
            monitor.scalars({"a": step, "b": step}, step)
    (file,) = tmp_path.glob("events*")
    return file


def test_later_points_go_and_earlier_ones_stay(file: Path) -> None:
    purge_files([file], 4)
    assert logged(file) == [("a", 1), ("b", 1)]
    assert list(file.parent.iterdir()) == [file]


def test_a_file_with_nothing_to_remove_is_left_alone(file: Path) -> None:
    before = (file.stat().st_mtime_ns, file.stat().st_ino, file.read_bytes())
    purge_files([file], 8)
    assert (file.stat().st_mtime_ns, file.stat().st_ino, file.read_bytes()) == before


@pytest.mark.parametrize("cut", [1, 5, 17])
def test_a_torn_record_at_the_end_is_dropped(file: Path, cut: int) -> None:
    file.write_bytes(file.read_bytes()[:-cut])
    purge_files([file], 8)
    assert logged(file) == [("a", 1), ("b", 1), ("a", 4), ("b", 4)]


def test_an_empty_file_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"")
    purge_files([tmp_path / "events.out.tfevents.1.x"], 3)
