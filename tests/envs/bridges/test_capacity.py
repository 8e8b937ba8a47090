import warnings

import numpy as np
import pytest

from entity_encoder.envs.bridges.capacity import Capacity

ROWS = np.array([[5.0, 0], [1, 1], [4, 2], [1, 3], [3, 4]])  # distance, index


@pytest.mark.parametrize(
    ("priority", "kept"),
    [
        ("first", [0, 1, 2]),
        ("last", [2, 3, 4]),
        (lambda rows: -rows[:, 0], [1, 3, 4]),  # nearest: 1, 1, 3
        (lambda rows: np.zeros(len(rows)), [0, 1, 2]),  # ties: the earlier ones
    ],
)
def test_a_rule_says_who_stays_and_a_counter_who_does_not(priority, kept: list[int]) -> None:
    capacity = Capacity("unit", 3, priority)
    with pytest.warns(UserWarning, match=r"5 entities of 'unit' do not fit into 3 slots"):
        rows, mask = capacity.pad(ROWS)
    assert rows[:, 1].tolist() == kept
    assert mask.tolist() == [1, 1, 1]
    assert capacity.truncated == 2
    with warnings.catch_warnings():  # said once, always the same choice
        warnings.simplefilter("error")
        assert all(capacity.choose(ROWS).tolist() == kept for _ in range(7))
    assert capacity.truncated == 16


def test_sets_that_fit_are_padded_with_zeros() -> None:
    rows, mask = Capacity("unit", 7).pad(ROWS)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, np.concatenate([ROWS, np.zeros((2, 2))]))
    assert mask.tolist() == [1, 1, 1, 1, 1, 0, 0]
    rows, mask = Capacity("unit", 2).pad(np.zeros((0, 3)))
    assert rows.shape == (2, 3)
    assert mask.sum() == 0


def test_what_makes_no_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="slots of 'unit' must be at least 1, got 0"):
        Capacity("unit", 0)
    with pytest.raises(ValueError, match="must be 'first', 'last' or a function, got 'random'"):
        Capacity("unit", 2, "random")  # type: ignore[arg-type]
    wrong = Capacity("unit", 2, lambda rows: rows)
    with (
        pytest.warns(UserWarning, match="do not fit"),
        pytest.raises(ValueError, match=r"one score for each of 5 rows, got shape \(5, 2\)"),
    ):
        wrong.choose(ROWS)
