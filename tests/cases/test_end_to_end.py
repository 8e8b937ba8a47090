"""Whole trainings that catch many mistakes at once; numbered E1 to E5 among the cases."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases.adapter import A
from tests.cases.toys import Toy


def clean() -> Toy:
    return Toy(0.0)


def poisoned() -> Toy:
    return Toy(float("nan"))


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


def test_e1_poisoned_padding_trains_to_the_same_bits() -> None:
    p = A.train(clean, 3, seed=1)["params"]
    q = A.train(poisoned, 3, seed=1)["params"]
    assert all(torch.isfinite(value).all() for value in p.values())
    assert_same(p, q)


@pytest.mark.parametrize("minibatch", [1, 7, 64])
def test_e2_ratio_is_one_without_learning(minibatch: int) -> None:
    ratios = A.train(clean, 2, seed=1, lr=0.0, minibatch=minibatch)["log_ratio_absmax"]
    assert len(ratios) == 2
    assert max(ratios) == 0.0  # exactly, on a CPU


def test_e3_resuming_is_invisible(tmp_path: Path) -> None:
    a = A.train(clean, 4, seed=1)
    A.train(clean, 2, seed=1, save=tmp_path / "half")
    b = A.train(clean, 4, seed=1, resume=tmp_path / "half")
    assert_same(a["params"], b["params"])
    assert a["steps"] == b["steps"] == 4 * 45


def test_e4_workers_change_nothing() -> None:
    sync = A.train(clean, 2, seed=1)["params"]
    assert_same(sync, A.train(clean, 2, seed=1, vector="async")["params"])


def test_e5_logging_changes_nothing(tmp_path: Path) -> None:
    quiet = A.train(clean, 2, seed=1)["params"]
    assert_same(quiet, A.train(clean, 2, seed=1, logger=tmp_path / "run")["params"])
    assert list((tmp_path / "run").glob("events.*"))
