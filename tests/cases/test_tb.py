"""What goes wrong with TensorBoard logs, one test or more for each case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.monitor import SCALARS, Monitor, settings
from tests.cases.adapter import A
from tests.cases.toys import Toy, counters


def read(run_dir: Path) -> EventAccumulator:
    log = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    log.Reload()
    return log


def points(run_dir: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(run_dir).Scalars(tag)]


def test_tb_01_a_resumed_log_is_one_rising_curve(tmp_path: Path) -> None:
    log = A.logger(tmp_path)
    for step in range(10):
        log.scalar("loss", float(step), step)
    for array in (np.array([np.nan] * 3), np.array([]), np.array([1.0, np.inf])):
        log.histogram("h", array, 9)
    log.close()
    log = A.logger(tmp_path, resume_step=6)
    for step in range(6, 12):
        log.scalar("loss", 100.0 + step, step)
    log.close()
    found = points(tmp_path, "loss")
    assert [step for step, _ in found] == list(range(12))
    assert found[5:8] == [(5, 5.0), (6, 106.0), (7, 107.0)]


def test_tb_01_a_resumed_training_is_one_run(tmp_path: Path) -> None:
    A.train(Toy, 3, seed=1, logger=tmp_path / "run")
    A.train(Toy, 2, seed=1, logger=tmp_path / "twin", save=tmp_path / "half")
    A.train(Toy, 3, seed=1, resume=tmp_path / "half", logger=tmp_path / "twin")
    for tag in ("loss/value", "policy/entropy", "episode/return"):
        assert points(tmp_path / "twin", tag) == points(tmp_path / "run", tag)
    assert not [path for path in (tmp_path / "twin").rglob("events*") if path.parent.name != "twin"]


@pytest.mark.parametrize(
    ("array", "lost"),
    [([np.nan, np.nan], 2), ([], 0), ([1, np.inf], 1), ([1, np.nan], 1)],
    ids=str,
)
def test_tb_03_a_histogram_of_nothing_finite_stops_no_training(
    tmp_path: Path, array: list[float], lost: int
) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.histogram("weights", np.array(array), 4)
    assert points(tmp_path, "non_finite/weights") == [(4, lost)]


def test_tb_04_settings_of_any_type_stay_in_the_run(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.hparams({"list": [1, 2], "none": None, "dict": {"a": []}}, ["loss"])
        monitor.scalar("loss", 1.0, 1)
    assert len(list(tmp_path.iterdir())) == 1  # one event file, no directory named by the time
    assert "_hparams_/session_start_info" in read(tmp_path).PluginTagToContent("hparams")


def test_tb_04_a_training_shows_all_its_settings(tmp_path: Path) -> None:
    A.train(Toy, 1, seed=1, logger=tmp_path)
    content = read(tmp_path).PluginTagToContent("hparams")["_hparams_/session_start_info"]
    assert all(name.encode() in content for name in settings(PPOConfig()))


def test_tb_05_a_video_needs_no_moviepy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moviepy", None)
    frames = [np.full((5, 7, 3), shade, np.uint8) for shade in (0, 90, 180)]
    with Monitor(tmp_path) as monitor:
        monitor.video("policy", frames, 1)
    (video,) = read(tmp_path).Images("policy")
    assert video.encoded_image_string[:6] == b"GIF89a"


WRITER = """
import sys
from entity_encoder.agents.monitor import Monitor
with Monitor(sys.argv[1]) as monitor:
    for step in range(50):
        monitor.scalar("loss", step, step)
print("worked", monitor.run_dir.name)
"""


def test_tb_07_of_several_processes_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in processes]
    assert said == [f"worked {tmp_path.name}\n"] * 2
    assert len(list(tmp_path.glob("events*"))) == 1
    assert [step for step, _ in points(tmp_path, "loss")] == list(range(50))


def test_tb_08_ten_thousand_updates_stay_below_20_megabytes(tmp_path: Path) -> None:
    tags = [scalar.tag.replace("*", "010-019") for scalar in SCALARS]
    tags += [f"return_by_entities/0{i}0-0{i}9" for i in range(8)]
    with Monitor(tmp_path) as monitor:
        for update in range(500):
            monitor.scalars(dict.fromkeys(tags, 1 / (update + 1)), update * 8192)
    (file,) = tmp_path.glob("events*")
    assert file.stat().st_size * 20 < 20e6


def test_tb_08_no_histogram_and_no_picture_by_default(tmp_path: Path) -> None:
    A.train(Toy, 1, seed=1, logger=tmp_path)
    tags = read(tmp_path).Tags()
    assert tags["histograms"] == tags["images"] == []
    assert len(tags["scalars"]) > 20


def valid_steps(mode: str, updates: int) -> list[int]:
    """Count by hand what a rollout of 8 steps of two counters of lengths 3 and 5 holds."""
    if mode != "NEXT_STEP":
        return [16 * update for update in range(1, updates + 1)]
    # a reset follows each episode: 1110 and 111110, repeated
    acts = [[t % 4 != 3 for t in range(8 * updates)], [t % 6 != 5 for t in range(8 * updates)]]
    return [sum(sum(row[: 8 * update]) for row in acts) for update in range(1, updates + 1)]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_tb_10_the_x_axis_counts_steps_that_were_learned_from(tmp_path: Path, mode: str) -> None:
    expected = valid_steps(mode, 4)
    config: dict[str, Any] = {
        "rollout_steps": 8,
        "d_model": 8,
        "n_heads": 2,
        "n_layers": 1,
        "threads": 1,
        "epochs": 1,
    }
    first = PPOConfig(num_envs=2, total_steps=expected[1], **config)
    PPO(counters([3, 5], mode), first, run_dir=tmp_path, progress=False).learn()
    second = PPO.load(
        tmp_path / "checkpoint",
        counters([3, 5], mode),
        progress=False,
        total_steps=expected[1] + 1,
    )
    second.learn()
    found = [step for step, _ in points(tmp_path, "loss/value")]
    assert found[:2] == expected[:2]
    assert found == sorted(set(found))
    assert len(found) == 3
