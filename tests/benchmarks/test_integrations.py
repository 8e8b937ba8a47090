from typing import Any

import numpy as np
import pytest

from benchmarks.integrations import main, show
from benchmarks.shuffled_tiles import REWARDS, ShuffledTiles, make_single


def test_the_safe_tile_may_stand_in_any_slot_and_its_direction_is_the_answer() -> None:
    from entity_encoder.envs.tasks.floor_is_lava import DIRECTIONS

    envs = ShuffledTiles(200, autoreset_mode="SameStep")
    seen, _ = envs.reset(seed=3)
    safe = seen["tile"][..., 2] == 1
    assert (safe.sum(1) == 1).all()
    assert (seen["tile_mask"][safe] == 1).all()
    assert set(np.flatnonzero(safe.sum(0))) == set(range(8))
    assert (seen["tile"][seen["tile_mask"] == 0] == 0).all()
    action = [
        DIRECTIONS.index(tuple(row)) for row in seen["tile"][safe][:, :2].astype(int).tolist()
    ]
    REWARDS.clear()
    _, reward, terminated, _, _ = envs.step(np.array(action))
    assert (reward == 1).all()
    assert terminated.all()
    assert REWARDS == [1.0] * 200


def test_the_flat_version_is_a_vector() -> None:
    assert make_single(flat=True).reset(seed=1)[0].shape == (8 * 3 + 8,)


def test_a_table_shows_the_spread_over_seeds() -> None:
    row: dict[str, Any] = {"library": "sb3", "steps": 2048}
    results = [
        row | {"features": "encoder", "score": 0.5},
        row | {"features": "encoder", "score": 0.7},
        row | {"features": "flat", "score": 0.25},
    ]
    expected = "| sb3 | 2,048 | 0.600 (0.500 to 0.700) | 0.250 (0.250 to 0.250) |"
    assert show(results).splitlines()[-1] == expected


def test_a_quick_look_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    results = main(["sb3", "--quick", "--json"])
    assert [result["features"] for result in results] == ["encoder", "flat"]
    assert all(0.05 < result["score"] < 0.3 for result in results)
    assert capsys.readouterr().out.count('"library": "sb3"') == 2
