"""Claims about attention with a learned bias."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entity_encoder.biased_attention import biased_attention


def _inputs(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    parts = [torch.randn(3, 2, 5, 4, dtype=dtype, requires_grad=True) for _ in range(3)]
    return [*parts, torch.randn(3, 2, 5, 5, dtype=dtype, requires_grad=True)]


def test_gradients_are_those_of_the_definition() -> None:
    q, k, v, bias = _inputs(torch.float64)
    direct = ((q @ k.transpose(-2, -1)) / 4**0.5 + bias).softmax(-1) @ v
    weight = torch.linspace(-1, 2, direct.numel(), dtype=torch.float64).view_as(direct)
    expected = torch.autograd.grad((direct * weight).sum(), [q, k, v, bias])
    out = biased_attention(q, k, v, bias)
    torch.testing.assert_close(out, direct)
    found = torch.autograd.grad((out * weight).sum(), [q, k, v, bias])
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("size", [2, 5, 9, 16, 33])
def test_values_are_bit_equal_with_and_without_gradients(size: int) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 7, 4, size, 16)
    bias = torch.randn(7, 4, size, size)
    plain = biased_attention(q, k, v, bias)
    learning = [part.clone().requires_grad_() for part in (q, k, v, bias)]
    assert torch.equal(biased_attention(*learning), plain)


def test_a_set_is_bit_equal_alone_and_in_a_batch() -> None:
    q, k, v, bias = (part.detach() for part in _inputs(torch.float32))
    together = biased_attention(q, k, v, bias)
    for i in range(3):
        alone = biased_attention(q[i : i + 1], k[i : i + 1], v[i : i + 1], bias[i : i + 1])
        assert torch.equal(alone[0], together[i])
