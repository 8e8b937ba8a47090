"""Claims about pooling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entity_encoder import pool
from entity_encoder.pooling import SetPooling

# Ramp values, so that no two entities or columns can be confused: 3 sets, 5 slots, 2 columns.
X = torch.arange(30.0).view(3, 5, 2) - 11
MASK = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])


def test_numbers_by_hand() -> None:
    # Set 0: slots 0, 2, 3 hold (-11, -10), (-7, -6), (-5, -4). Set 2: slot 4 holds (17, 18).
    assert pool(X, MASK, "sum").tolist() == [[-23, -20], [0, 0], [17, 18]]
    assert pool(X, MASK, "max").tolist() == [[-5, -4], [0, 0], [17, 18]]
    mean = torch.tensor([[-23 / 3, -20 / 3], [0, 0], [17, 18]])
    torch.testing.assert_close(pool(X, MASK), mean)


@pytest.mark.parametrize("how", ["mean", "max", "sum"])
@given(
    lead=st.lists(st.integers(0, 3), max_size=3),
    slots=st.integers(0, 7),
    width=st.integers(1, 4),
    junk=st.sampled_from([0.0, 1e30, np.inf, -np.inf, np.nan]),
    seed=st.integers(0, 2**20),
)
def test_any_shape_agrees_with_a_loop(
    how: str, lead: list[int], slots: int, width: int, junk: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*lead, slots, width))
    mask = rng.random((*lead, slots)) < 0.5
    filled = torch.from_numpy(np.where(mask[..., None], x, junk)).requires_grad_()
    out = pool(filled, torch.from_numpy(mask), how)
    assert out.shape == (*lead, width)
    for place in np.ndindex(*lead):
        real = x[place][mask[place]]
        expected = getattr(real, how)(0) if len(real) else np.zeros(width)
        np.testing.assert_allclose(out[place].detach(), expected, rtol=1e-12, atol=1e-12)
    out.sum().backward()
    assert filled.grad is not None
    assert torch.isfinite(filled.grad).all()
    assert (filled.grad[torch.from_numpy(~mask)] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("how", ["mean", "max"])
def test_many_entities_do_not_overflow_half_precision(dtype: torch.dtype, how: str) -> None:
    x = torch.full((1, 700, 3), 100.0, dtype=dtype)
    out = pool(x, torch.ones(1, 700), how)
    assert out.dtype == dtype
    assert (out == 100).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.float32])
def test_every_mask_dtype_means_the_same(dtype: torch.dtype) -> None:
    assert torch.equal(pool(X, MASK.to(dtype)), pool(X, MASK))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"how must be one of \['mean', 'max', 'sum'\], got 'men'"):
        pool(X, MASK, "men")
    with pytest.raises(ValueError, match=r"mask must have shape \(3, 5\), got \(3, 4\)"):
        pool(X, MASK[:, :4])
    with pytest.raises(ValueError, match="must hold exactly 0 and 1, got 2"):
        pool(X, MASK * 2)


def test_read_outs_refuse_unknown_names_and_no_queries() -> None:
    with pytest.raises(ValueError, match=r"pooling must be one of .* got 'clas'; did you mean 'cl"):
        SetPooling("clas", 8, n_heads=2)
    with pytest.raises(ValueError, match="n_queries must be at least 1, got 0"):
        SetPooling("attention", 8, n_heads=2, n_queries=0)


@pytest.mark.parametrize(
    ("how", "queries", "width"),
    [("mean", 1, 8), ("class", 1, 8), ("attention", 3, 24), ("ego", 1, 16)],
)
def test_the_width_of_a_read_out_is_known(how: str, queries: int, width: int) -> None:
    assert SetPooling(how, 8, n_heads=2, n_queries=queries).output_dim == width
