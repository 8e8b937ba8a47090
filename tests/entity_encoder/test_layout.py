"""Claims about how sets lie in memory."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from entity_encoder.layout import dense_layout, packed_layouts, tokens

batches = st.tuples(st.integers(0, 7), st.integers(0, 9), st.floats(0, 1), st.integers(0, 2**20))


def _mask(batch: int, slots: int, density: float, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((batch, slots)) < density)


@given(batches, st.none() | st.integers(1, 20))
def test_every_present_entity_has_one_row(
    shape: tuple[int, int, float, int], max_rows: int | None
) -> None:
    mask = _mask(*shape)
    layouts = packed_layouts(mask, strategy="groups", max_rows=max_rows)
    rows = torch.cat([layout.rows for layout in layouts]).sort().values
    assert rows.tolist() == mask.flatten().nonzero().flatten().tolist()
    for layout in layouts:
        assert layout.n_rows % 16 == 0
        assert 0 <= layout.n_rows - len(layout.rows) < 16
        sizes = [size for count, size in layout.groups for _ in range(count)]
        assert sizes == sorted(sizes)
        assert sizes == mask.sum(1)[layout.sets].tolist()
        if max_rows is not None:
            assert len(layout.rows) <= max_rows or layout.n_sets == 1


@given(batches, st.none() | st.integers(1, 20))
def test_slots_to_rows_and_back_is_the_identity_on_entities(
    shape: tuple[int, int, float, int], max_rows: int | None
) -> None:
    mask = _mask(*shape)
    x = torch.arange(mask.numel() * 3.0).view(*mask.shape, 3) + 1
    expected = torch.where(mask[..., None], x, 0.0)
    packed = packed_layouts(mask, strategy="groups", max_rows=max_rows)
    assert torch.equal(tokens(packed, [layout.pick(x) for layout in packed]), expected)
    dense = dense_layout(mask)
    assert torch.equal(tokens([dense], [dense.pick(x)]), expected)


@given(batches, st.sampled_from(["sum", "mean", "max"]))
def test_packed_and_dense_reductions_agree(shape: tuple[int, int, float, int], how: str) -> None:
    mask = _mask(*shape)
    x = torch.randn(*mask.shape, 3, generator=torch.Generator().manual_seed(shape[3]))
    (packed,) = packed_layouts(mask, strategy="groups")
    dense = dense_layout(mask).reduce(x, how)  # type: ignore[arg-type]
    reduced = packed.reduce(packed.pick(x), how)  # type: ignore[arg-type]
    torch.testing.assert_close(reduced, dense[packed.sets])
    empty = ~mask.any(1)
    assert (dense[empty] == 0).all()
    assert len(packed.sets) == int((~empty).sum())
