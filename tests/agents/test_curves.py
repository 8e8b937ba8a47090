"""Learning curves read back, and averaged over seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from entity_encoder.agents.curves import Curve, band, find_runs, group_runs, read_curves, smooth
from entity_encoder.agents.monitor import Monitor


def write_run(run_dir: Path, values: dict[int, float], tag: str = "episode/return") -> Path:
    with Monitor(run_dir) as monitor:
        for step, value in values.items():
            monitor.scalar(tag, value, step)
    return run_dir


def curve(points: dict[int, float]) -> Curve:
    return Curve(np.array(list(points)), np.array(list(points.values())))


def test_every_point_of_a_long_run_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, {step: step / 7 for step in range(0, 20_200, 2)})
    found = read_curves(tmp_path)["episode/return"]
    assert len(found.steps) == 10_100  # TensorBoard's own page samples 1,000 of them
    assert found.values[-1] == pytest.approx(20_198 / 7)


def test_runs_are_found_below_a_directory_and_once_only(tmp_path: Path) -> None:
    first = write_run(tmp_path / "runs" / "a", {1: 1.0})
    second = write_run(tmp_path / "runs" / "deep" / "b", {1: 1.0})
    assert find_runs([tmp_path / "runs", first]) == [first, second]


def test_a_missing_or_empty_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run must be an existing directory, got '.*nowhere'"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="run must hold TensorBoard event files, got none in"):
        find_runs([tmp_path])


def test_seeds_of_one_experiment_are_put_together() -> None:
    names = ["a-seed1", "a-seed12", "a_s3", "a-seed1-2", "b/1", "b/seed2", "c-2x", "seeds"]
    found = {k: len(v) for k, v in group_runs([Path("runs") / name for name in names]).items()}
    assert found == {"a": 4, "b": 2, "c-2x": 1, "seeds": 1}


def test_equal_names_in_two_places_are_told_apart() -> None:
    runs = [Path("old/a-seed1"), Path("new/a-seed1"), Path("new/a-seed2")]
    assert {k: len(v) for k, v in group_runs(runs).items()} == {"old/a": 1, "new/a": 2}


def test_band_of_three_seeds_by_hand() -> None:
    # values 1, 2, 6 at step 10: mean 3, half width 4.302653 sqrt(7 / 3)
    found = band([curve({10: 1.0, 20: 5.0}), curve({10: 2.0, 20: 5.0}), curve({10: 6.0, 20: 5.0})])
    half = 4.302653 * np.sqrt(7 / 3)
    assert found.count == 3
    assert found.mean.tolist() == [3.0, 5.0]
    assert found.low == pytest.approx([3 - half, 5.0])
    assert found.high == pytest.approx([3 + half, 5.0])


def test_band_uses_each_curve_where_it_reaches() -> None:
    found = band([curve({0: 0.0, 10: 10.0}), curve({5: 15.0, 20: 30.0})])
    assert found.steps.tolist() == [0, 5, 10, 20]
    assert found.mean.tolist() == [0.0, 10.0, 15.0, 30.0]  # 5: (5 + 15) / 2; 10: (10 + 20) / 2
    assert np.isnan(found.low).tolist() == [True, False, False, True]


def test_band_leaves_a_hole_where_no_curve_reaches() -> None:
    found = band([curve({0: 1.0, 1: 1.0, 9: np.nan}), curve({5: 3.0, 6: 3.0})])
    assert found.steps.tolist() == [0, 1, 5, 6]


def test_band_needs_a_finite_point() -> None:
    with pytest.raises(ValueError, match="curves must hold at least one finite point, got none"):
        band([curve({3: np.nan})])


def test_smoothing_is_tensorboards() -> None:
    # weight .5: (.5 * 4) / .5 = 4; (.25 * 4 + .5 * 0) / .75 = 4 / 3; a gap keeps the last value
    found = smooth(curve({1: 4.0, 2: 0.0, 3: np.nan}), 0.5)
    assert found.values == pytest.approx([4.0, 4 / 3, 4 / 3])
    raw = curve({1: 4.0, 2: 0.5})
    assert smooth(raw, 0.0).values.tolist() == [4.0, 0.5]


@pytest.mark.parametrize("weight", [-0.1, 1.0])
def test_smoothing_has_a_range(weight: float) -> None:
    with pytest.raises(ValueError, match="smoothing must be at least 0 and below 1, got"):
        smooth(curve({1: 1.0}), weight)
