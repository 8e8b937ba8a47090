"""The TensorBoard log: what is read back from the files, in the reader TensorBoard uses."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from entity_encoder.agents.monitor import Monitor


def read(run_dir: Path) -> EventAccumulator:
    """Read every point of a run."""
    everything = {"scalars": 0, "images": 0, "tensors": 0, "histograms": 0}
    accumulator = EventAccumulator(str(run_dir), size_guidance=everything)
    accumulator.Reload()
    return accumulator


def scalars(run_dir: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(run_dir).Scalars(tag)]


def test_scalars_of_every_kind_of_number_arrive(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        values = {
            "loss/policy": torch.tensor(0.5, requires_grad=True),
            "loss/value": torch.tensor([2.0], dtype=torch.bfloat16),
            "policy/kl": np.float64(0.25),
            "policy/entropy": 3,
            "episode/return": np.array([1.5]),
            "episode/score": None,
            "value/explained_variance": float("nan"),
        }
        monitor.scalars(values, 17)
    log = read(tmp_path)
    assert "episode/score" not in log.Tags()["scalars"]
    assert np.isnan(log.Scalars("value/explained_variance")[0].value)
    expected = {"loss/policy": 0.5, "loss/value": 2.0, "policy/kl": 0.25, "policy/entropy": 3.0}
    for tag, value in {**expected, "episode/return": 1.5}.items():
        assert scalars(tmp_path, tag) == [(17, value)]


def test_resume_purges_every_tag_from_its_step_on(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        for step in range(7):
            monitor.scalars({"a": step, "only_before": step}, step)
    with Monitor(tmp_path, resume_step=4) as monitor:
        for step in range(4, 9):
            monitor.scalars({"a": 100 + step}, step)
    assert scalars(tmp_path, "a") == [(s, s if s < 4 else 100 + s) for s in range(9)]
    assert scalars(tmp_path, "only_before") == [(s, s) for s in range(4)]


def test_steps_before_the_resume_step_are_left_out(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.scalar("a", 1.0, 5)
    with Monitor(tmp_path, resume_step=6) as monitor:
        monitor.scalar("a", 2.0, 5)
        monitor.scalar("a", 3.0, 6)
    assert scalars(tmp_path, "a") == [(5, 1.0), (6, 3.0)]


def test_a_run_killed_in_the_middle_of_a_record_is_resumed(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        for step in range(5):
            monitor.scalar("a", step, step)
    (file,) = tmp_path.glob("events*")
    file.write_bytes(file.read_bytes()[:-3])
    with Monitor(tmp_path, resume_step=4) as monitor:
        monitor.scalar("a", 40.0, 4)
    assert scalars(tmp_path, "a") == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 40.0)]


def test_a_fresh_start_hides_an_earlier_log_in_the_same_directory(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with Monitor(tmp_path) as monitor:
            monitor.scalar("a", value, 3)
    assert scalars(tmp_path, "a") == [(3, 2.0)]


def test_a_repeated_step_is_left_out_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Monitor(tmp_path) as monitor:
        for step in (2, 2, 1, 5):
            monitor.scalar("a", step, step)
    assert scalars(tmp_path, "a") == [(2, 2.0), (5, 5.0)]
    assert [record.message for record in caplog.records] == [
        "a at step 2 is not after the last one; left out"
    ]


@pytest.mark.parametrize(
    ("array", "kept", "lost"),
    [
        (np.array([np.nan, np.nan, np.nan]), 0, 3),
        (np.array([]), 0, 0),
        (np.array([1.0, np.inf]), 1, 1),
        (torch.tensor([[1.0, float("nan")], [2.0, -3.0]], dtype=torch.float16), 3, 1),
        (torch.zeros(5, 0), 0, 0),
        (np.full(7, 2.5), 7, 0),
        (np.array([1.0, 1.0 + 1e-16, 1.0 + 2e-16]), 3, 0),
        (np.array([-1e300, 1e300]), 2, 0),
        (np.array([5e-324, 1e-310, 0.0]), 3, 0),
        (np.array([3], dtype=np.int64), 1, 0),
        (torch.tensor([True, False, True]), 3, 0),
    ],
)
def test_histogram_counts_what_it_keeps_and_what_it_leaves_out(
    tmp_path: Path, array: object, kept: int, lost: int
) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.histogram("weights", array, 11)
    (event,) = read(tmp_path).Histograms("weights")
    assert (event.step, event.histogram_value.num) == (11, kept)
    assert sum(event.histogram_value.bucket) == kept
    assert np.isfinite(event.histogram_value.bucket_limit).all()
    assert np.isfinite(event.histogram_value.sum_squares)
    assert scalars(tmp_path, "non_finite/weights") == [(11, lost)]


def test_histogram_bins_hold_the_values_between_their_edges(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.histogram("h", np.array([0.0, 0.1, 0.1, 6.4]), 1)  # 64 bins of width 0.1
    value = read(tmp_path).Histograms("h")[0].histogram_value
    buckets = dict(enumerate(value.bucket))
    assert {k: v for k, v in buckets.items() if v} == {0: 1, 1: 2, 63: 1}
    assert (value.min, value.max, value.sum) == (0.0, 6.4, pytest.approx(6.6))


def test_image_and_video_arrive_as_pictures(tmp_path: Path) -> None:
    frames = [np.full((13, 17, 3), shade, dtype=np.uint8) for shade in (0, 90, 200)]
    with Monitor(tmp_path) as monitor:
        monitor.image("frame", frames[1], 3)
        monitor.video("policy", frames, 3, fps=10)
        monitor.video("nothing", [], 3)
    log = read(tmp_path)
    assert log.Tags()["images"] == ["frame", "policy"]
    still, moving = log.Images("frame")[0], log.Images("policy")[0]
    assert (still.height, still.width) == (moving.height, moving.width) == (13, 17)
    picture = np.asarray(Image.open(io.BytesIO(still.encoded_image_string)))
    assert (picture == 90).all()
    film = Image.open(io.BytesIO(moving.encoded_image_string))
    assert (film.format, getattr(film, "n_frames", 1)) == ("GIF", 3)


def test_hparams_of_any_type_stay_in_the_one_run(tmp_path: Path) -> None:
    values = {
        "lr": 3e-4,
        "epochs": np.int64(4),
        "normalise": True,
        "name": "minefield",
        "layers": [64, 32],
        "extra": {"a": (1, None)},
        "nothing": None,
        "limit": float("inf"),
        "device": torch.device("cpu"),
    }
    with Monitor(tmp_path) as monitor:
        monitor.hparams(values, metrics=["episode/return"])
        monitor.scalar("episode/return", 0.5, 64)
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []
    content = {
        tag: plugin_data_pb2.HParamsPluginData.FromString(data)
        for tag, data in read(tmp_path).PluginTagToContent("hparams").items()
    }
    start = content["_hparams_/session_start_info"].session_start_info
    found = {k: getattr(v, str(v.WhichOneof("kind"))) for k, v in start.hparams.items()}
    assert found == {
        "lr": 3e-4,
        "epochs": 4.0,
        "normalise": True,
        "name": "minefield",
        "layers": "[64, 32]",
        "extra": '{"a": [1, null]}',
        "nothing": "null",
        "limit": "Infinity",
        "device": '"cpu"',
    }
    metrics = content["_hparams_/experiment"].experiment.metric_infos
    assert [m.name.tag for m in metrics] == ["episode/return"]
    assert content["_hparams_/session_end_info"].session_end_info.status == 1  # success


def test_an_exception_marks_the_run_as_failed(tmp_path: Path) -> None:
    def fail() -> None:
        with Monitor(tmp_path) as monitor:
            monitor.hparams({"a": 1})
            raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        fail()
    data = read(tmp_path).PluginTagToContent("hparams")["_hparams_/session_end_info"]
    end = plugin_data_pb2.HParamsPluginData.FromString(data).session_end_info
    assert end.status == 2  # failure


def test_text_and_layout_are_there_from_the_start(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.text("config", "| a | b |\n|---|---|\n| 1 | 2 |")
    log = read(tmp_path)
    (text,) = log.Tensors("config/text_summary")
    assert b"| 1 | 2 |" in text.tensor_proto.string_val[0]
    assert "custom_scalars__config__" in log.Tags()["tensors"]


def test_a_disabled_monitor_leaves_no_trace(tmp_path: Path) -> None:
    with Monitor(tmp_path / "run", enabled=False) as monitor:
        monitor.scalar("a", 1.0, 1)
        monitor.histogram("h", np.ones(3), 1)
        monitor.image("i", np.zeros((2, 2)), 1)
        monitor.video("v", [np.zeros((2, 2))], 1)
        monitor.text("t", "x")
        monitor.hparams({"a": 1})
        monitor.flush()
    assert not monitor.enabled
    assert not (tmp_path / "run").exists()


def test_only_the_first_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, writes in (("1", False), ("0", True)):
        monkeypatch.setenv("RANK", rank)
        with Monitor(tmp_path / rank) as monitor:
            assert monitor.enabled is writes
            monitor.scalar("a", 1.0, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["0"]


def test_nothing_is_written_after_close(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.scalar("a", 1.0, 1)
    monitor.close()
    monitor.scalar("a", 2.0, 2)
    monitor.close()
    assert scalars(tmp_path, "a") == [(1, 1.0)]


def test_flush_puts_the_points_on_the_disk(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, flush_seconds=10_000)
    monitor.scalar("a", 1.0, 1)
    monitor.flush()
    assert scalars(tmp_path, "a") == [(1, 1.0)]
    monitor.close()


def test_a_failing_disk_ends_the_log_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monitor = Monitor(tmp_path)
    monkeypatch.setattr(monitor._writer.file_writer, "add_summary", full)
    monitor.scalar("a", 1.0, 1)
    monitor.scalar("a", 2.0, 2)
    assert not monitor.enabled
    assert [r.message for r in caplog.records] == [
        f"TensorBoard log in {tmp_path} stops here: [Errno 28] No space left on device"
    ]


def test_logging_draws_no_random_number(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    before_numpy = repr(np.random.get_state())  # noqa: NPY002 - the global generator is the point
    with Monitor(tmp_path) as monitor:
        monitor.scalars({"a": torch.tensor(1.0)}, 1)
        monitor.histogram("h", torch.ones(3), 1)
        monitor.video("v", [np.zeros((4, 4, 3))] * 2, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(np.random.get_state()) == before_numpy  # noqa: NPY002
