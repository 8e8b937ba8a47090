"""Pictures of learning curves."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from entity_encoder.agents.monitor import Monitor
from entity_encoder.agents.plots import plot_runs

pytest.importorskip("matplotlib", reason="plots are an extra")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one experiment, one of another."""
    folder = tmp_path_factory.mktemp("runs")
    for name, offset in (("a-seed1", 0.0), ("a-seed2", 0.3), ("a-seed3", 0.5), ("b-seed1", -0.4)):
        with Monitor(folder / name) as monitor:
            for step in range(0, 5_000, 500):
                monitor.scalars({"episode/return": offset + step / 5_000}, step)
                if name.startswith("a"):
                    monitor.scalars({"episode/score": offset}, step)
    return folder


def test_png_and_svg_show_every_group(runs: Path, tmp_path: Path) -> None:
    png, svg = plot_runs([runs], tmp_path / "new" / "curves", title="Two experiments")
    assert (png.name, svg.name) == ("curves.png", "curves.svg")
    picture = np.asarray(Image.open(png).convert("RGB")).reshape(-1, 3)
    colours = {tuple(colour) for colour in np.unique(picture, axis=0).tolist()}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # one line for each experiment
    assert svg.read_text().lstrip().startswith("<?xml")


def test_an_ending_is_not_doubled(runs: Path, tmp_path: Path) -> None:
    files = plot_runs([runs / "b-seed1"], tmp_path / "v1.0.png", tags=["episode/return"])
    assert [file.name for file in files] == ["v1.0.png", "v1.0.svg"]


def test_a_single_point_is_drawn(tmp_path: Path) -> None:
    with Monitor(tmp_path / "run") as monitor:
        monitor.scalar("evaluation/return", 1.0, 10)
    png, _ = plot_runs([tmp_path / "run"], tmp_path / "one")
    picture = np.asarray(Image.open(png).convert("RGB"))
    assert (picture == (0x00, 0x72, 0xB2)).all(-1).any()


def test_an_unknown_tag_gives_the_nearest(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 'episode/retrun'; did you mean 'episode/return'"):
        plot_runs([runs], tmp_path / "x", tags=["episode/retrun"])
    assert not (tmp_path / "x.png").exists()


def test_without_the_usual_tags_some_must_be_named(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.scalar("loss/value", 1.0, 1)
    with pytest.raises(ValueError, match="tags must be given, for none of"):
        plot_runs([tmp_path], tmp_path / "x")


def test_no_display_and_no_gui_backend_is_needed(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    for module in ("matplotlib.pyplot", "tkinter"):  # importing them would fail
        monkeypatch.setitem(sys.modules, module, None)
    assert all(file.exists() for file in plot_runs([runs], tmp_path / "c"))


def test_without_matplotlib_the_extra_is_named(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pip install 'entity-encoder\[plot\]'"):
        plot_runs([runs], tmp_path / "x")
