"""Confidence intervals against published numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from entity_encoder.agents.statistics import mean_of, t_quantile


@pytest.mark.parametrize(
    ("degrees", "expected"),
    # from the table in any statistics book, two-sided 95 %
    [(1, 12.706), (2, 4.303), (5, 2.571), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_t_quantile_equals_the_table(degrees: int, expected: float) -> None:
    assert t_quantile(degrees) == pytest.approx(expected, abs=6e-4)


def test_quantile_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="degrees must be at least 1, got 0; a mean needs two"):
        t_quantile(0)


def test_interval_by_hand() -> None:
    # 1, 2, 6: mean 3, sd sqrt((4 + 1 + 9) / 2) = sqrt 7, half width 4.302653 sqrt(7 / 3)
    found = mean_of([1.0, 2.0, 6.0])
    half = 4.302653 * math.sqrt(7 / 3)
    assert (found.mean, found.count) == (3.0, 3)
    assert found.sd == pytest.approx(math.sqrt(7))
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))
    assert str(found) == "3.000 (95 %: -3.572 to 9.572, sd 2.646)"


def test_one_value_has_no_spread_and_none_has_no_mean() -> None:
    assert str(mean_of([2.5])) == "2.500"
    assert math.isnan(mean_of([2.5]).sd)
    assert math.isnan(mean_of([]).mean)


def test_interval_holds_the_truth_19_times_in_20() -> None:
    samples = np.random.default_rng(0).normal(5.0, 3.0, size=(4000, 7))
    found = [mean_of(sample) for sample in samples]
    assert np.mean([f.low <= 5.0 <= f.high for f in found]) == pytest.approx(0.95, abs=0.01)
