"""Claims about running normalisation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entity_encoder.normalisation import RunningNorm


def test_statistics_are_those_of_real_entities() -> None:
    norm = RunningNorm(1)
    x = np.full((1, 8, 1), 1e30, np.float32)
    x[0, :3, 0] = [10, 12, 14]
    mask = np.array([[1, 1, 1, 0, 0, 0, 0, 0]])
    norm.update(x, mask)
    assert norm.count == 3
    assert norm.mean == 12
    assert norm.var == pytest.approx(8 / 3)  # ((-2)^2 + 0 + 2^2) / 3
    out = norm(x, mask)
    assert (out[0, 3:] == 0).all()
    torch.testing.assert_close(out[0, :3, 0], torch.tensor([-(1.5**0.5), 0.0, 1.5**0.5]))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 2**20))
def test_pieces_in_any_cut_give_the_statistics_of_the_whole(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = [rng.normal(5, 3, (n, 4, 3)) for n in cuts]
    masks = [rng.random((n, 4)) < 0.6 for n in cuts]
    norm = RunningNorm(3)
    for x, mask in zip(pieces, masks, strict=True):
        norm.update(np.where(mask[..., None], x, np.nan), mask)
    real = np.concatenate([x[mask] for x, mask in zip(pieces, masks, strict=True)])
    assert norm.count == len(real)
    if len(real):
        np.testing.assert_allclose(norm.mean, real.mean(0), rtol=1e-9)
        np.testing.assert_allclose(norm.var, real.var(0), rtol=1e-6, atol=1e-12)


def test_large_offsets_keep_their_digits() -> None:
    norm = RunningNorm(1)
    for shift in (0, 1, 2):
        norm.update(torch.tensor([[1e8 + shift], [1e8 + 4 - shift]], dtype=torch.float64))
    # 0, 4, 1, 3, 2, 2 above 1e8
    assert norm.mean == 1e8 + 2
    assert norm.var == pytest.approx(10 / 6)


def test_features_pass_unchanged_before_the_first_update() -> None:
    norm = RunningNorm(2)
    x = torch.tensor([[3.0, -500.0]])
    assert torch.equal(norm(x), x)
    norm.update(torch.zeros(0, 2))
    assert torch.equal(norm(x), x)
    assert torch.equal(norm.var, torch.ones(2, dtype=torch.float64))


def test_forward_never_changes_the_statistics() -> None:
    norm = RunningNorm(2)
    norm.update(torch.randn(7, 2))
    before = copy.deepcopy(norm.state_dict())
    norm.train()
    norm(torch.randn(5, 2))
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_outliers_are_clipped_and_constant_columns_become_zero() -> None:
    norm = RunningNorm(2, clip=3.0)
    norm.update(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    out = norm(torch.tensor([[2.0, 5.0], [1e6, 5.0], [-1e30, 5.0]]))
    assert out.tolist() == [[0.0, 0.0], [3.0, 0.0], [-3.0, 0.0]]


def test_new_statistics_take_effect_at_once_however_they_arrive() -> None:
    norm, other = RunningNorm(1), RunningNorm(1)
    x = torch.tensor([[3.0]])
    norm.update(torch.tensor([[0.0], [2.0]]))
    assert norm(x) == 2
    norm.update(torch.tensor([[6.0], [8.0]]))
    assert norm(x) == pytest.approx(-1 / 10**0.5)  # mean 4, variance 10
    assert other(x) == 3
    other.load_state_dict(norm.state_dict())
    assert torch.equal(other(x), norm(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_features_and_not_statistics(dtype: torch.dtype) -> None:
    norm = RunningNorm(1)
    norm.update(torch.tensor([[1000.25], [1000.75]]))
    exact = copy.deepcopy(norm.state_dict())
    norm.to(dtype)
    for name, value in norm.state_dict().items():
        assert value.dtype == torch.float64
        assert torch.equal(value, exact[name])
    assert norm(torch.zeros(1, 1, dtype=dtype)).dtype == dtype
    assert norm.float().mean == 1000.5


def test_integer_features_are_normalised_in_floating_point() -> None:
    norm = RunningNorm(1)
    norm.update(torch.tensor([[1], [3]]))
    assert norm(torch.tensor([[3]])).tolist() == [[1.0]]


def test_arrays_may_be_read_only() -> None:
    x, mask = np.ones((3, 2), np.float32), np.ones(3)
    x.setflags(write=False)
    mask.setflags(write=False)
    norm = RunningNorm(2)
    norm.update(x, mask)
    assert (norm(x, mask) == 0).all()


def test_a_norm_made_in_inference_mode_works_there() -> None:
    with torch.inference_mode():
        norm = RunningNorm(1)
        norm.update(torch.tensor([[0.0], [2.0]]))
        assert norm(torch.tensor([[3.0]])) == 2


def test_zero_columns_and_zero_entities_are_fine() -> None:
    norm = RunningNorm(0)
    norm.update(torch.zeros(3, 0))
    assert norm(torch.zeros(3, 0)).shape == (3, 0)
    assert RunningNorm(2)(torch.zeros(0, 5, 2)).shape == (0, 5, 2)


def test_a_clip_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match=r"clip must be positive, got 0\.0"):
        RunningNorm(2, clip=0.0)
