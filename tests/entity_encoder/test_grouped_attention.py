"""Runs of small sets attend as the definition says, in value and in gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from entity_encoder import EntityTransformer
from entity_encoder.grouped_attention import SMALL_SET, grouped_attention

# (sets, size): alone, written out, and as matrices
GROUPS = [(3, 1), (2, 2), (4, 3), (3, 5), (2, 9)]
ROWS = sum(count * size for count, size in GROUPS)
HEADS, HEAD_DIM, TAIL = 3, 5, 2


def rows(seed: int = 0, tail: int = TAIL) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (ROWS + tail, 3 * HEADS * HEAD_DIM)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def by_definition(qkv: Tensor) -> Tensor:
    out, start = [], 0
    for count, size in GROUPS:
        for i in range(count):
            first = start + i * size
            q, k, v = qkv[first : first + size].unflatten(1, (3, HEADS, HEAD_DIM)).unbind(1)
            for_heads = []
            for h in range(HEADS):
                scores = q[:, h] @ k[:, h].T / HEAD_DIM**0.5
                for_heads.append(scores.softmax(1) @ v[:, h])
            out.append(torch.cat(for_heads, 1))
        start += count * size
    return torch.cat(out)


@pytest.fixture(params=[1, 4, 16], autouse=True)
def shortest_row(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pad keys to the registers of several processors, in float64 too."""
    monkeypatch.setattr("entity_encoder.grouped_attention.shortest_row", lambda *_: request.param)


def test_values_are_those_of_the_definition() -> None:
    qkv = rows()
    assert torch.allclose(grouped_attention(qkv, GROUPS, HEADS)[:ROWS], by_definition(qkv))


def test_the_tail_is_zero_whatever_it_holds() -> None:
    qkv = rows()
    qkv[ROWS:] = float("nan")
    assert torch.equal(grouped_attention(qkv, GROUPS, HEADS)[ROWS:], torch.zeros(TAIL, 15).double())


def test_gradients_are_those_of_numerical_differences() -> None:
    qkv = rows().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: grouped_attention(x, GROUPS, HEADS), qkv)


def test_what_is_not_finite_stays_within_its_set() -> None:
    clean = rows()
    expected = grouped_attention(clean, GROUPS, HEADS)
    for bad in (torch.nan, torch.inf):
        spoilt = clean.clone()
        spoilt[ROWS - 9 :] = bad  # the last set, and the tail
        out = grouped_attention(spoilt, GROUPS, HEADS)
        assert torch.equal(out[: ROWS - 9], expected[: ROWS - 9])


def test_the_tail_gets_no_gradient() -> None:
    qkv = rows().requires_grad_()
    grouped_attention(qkv, GROUPS, HEADS).sum().backward()
    assert qkv.grad is not None
    assert not qkv.grad[ROWS:].any()
    assert qkv.grad[:ROWS].any()


def test_nothing_at_all_gives_nothing() -> None:
    assert grouped_attention(torch.zeros(0, 45), [], HEADS).shape == (0, 15)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 9, 16, 17, 23, SMALL_SET, SMALL_SET + 1])
def test_a_set_has_the_same_bits_alone_and_among_others(size: int) -> None:
    torch.manual_seed(size)
    transformer = EntityTransformer(5, d_model=24, n_heads=3)
    x = torch.randn(23, size, 5)
    together = transformer(x)
    for i in range(23):
        assert torch.equal(transformer(x[i : i + 1])[0], together[i])


def test_sets_on_both_sides_of_the_bound_agree_with_the_fused_kernel() -> None:
    torch.manual_seed(0)
    transformer = EntityTransformer(5, d_model=24, n_heads=3)
    x = torch.randn(4, SMALL_SET + 3, 5)
    mask = torch.arange(SMALL_SET + 3) < torch.tensor([[2], [7], [SMALL_SET], [SMALL_SET + 3]])
    packed = transformer(x, mask)
    transformer.attention = "dense"
    assert torch.allclose(packed, transformer(x, mask), atol=1e-5)
    grad_packed, grad_fused = (
        torch.autograd.grad(out.square().sum(), transformer.embed.weight)[0]
        for out in (packed, transformer(x, mask))
    )
    assert torch.allclose(grad_packed, grad_fused, rtol=1e-3, atol=1e-3)
    assert F.cosine_similarity(grad_packed.flatten(), grad_fused.flatten(), dim=0) > 0.99999
