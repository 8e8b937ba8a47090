"""Claims about the tables: ratios and units are those of the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tables


def encoder_rows() -> list[dict[str, Any]]:
    case = {"net": "small", "batch": 2048, "slots": 16, "fill": 50, "mode": "train"}
    seconds = {"entity-encoder": 0.1, "floor": 0.05}
    seconds |= dict(zip(tables.PEERS, (0.2, 0.25, 0.3), strict=True))
    return [
        {
            **case,
            "contender": name,
            "seconds": value,
            "floor_multiple": value / 0.05,
            "peak_bytes": 3 * 2**20,
        }
        for name, value in seconds.items()
    ]


def test_a_case_is_one_line_with_ratios_to_ours() -> None:
    line = tables.encoder_table(encoder_rows()).splitlines()[-1]
    assert line == (
        "| small | 2048 x 16 | 50 % | forward and backward | 100.0 | 2.00 "
        "| 2.00 x | 2.50 x | 3.00 x | 3, 3 |"
    )
    both = tables.encoder_table(encoder_rows(), encoder_rows())
    assert both.count(line) == 2


def test_files_that_are_there_become_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    (tmp_path / "encoder.json").write_text(json.dumps(encoder_rows()))
    trainers = [
        {
            "trainer": name,
            "version": "1",
            "steps_per_cpu_second": speed,
            "steps_per_second": speed,
            "env_share": 0.1,
            "inference_share": 0.2,
            "update_share": 0.7,
        }
        for name, speed in (("sb3", 1000.0), ("entity-encoder", 2500.0))
    ]
    (tmp_path / "ppo.json").write_text(json.dumps(trainers))
    assert [path.name for path in tables.main()] == ["encoder.md", "ppo.md"]
    assert "| sb3 | 1 | 1,000 | 1,000 | 2.50 x | 10% | 20% | 70% |" in (
        (tmp_path / "ppo.md").read_text()
    )
    assert (tmp_path / "encoder.png").stat().st_size > 1000
