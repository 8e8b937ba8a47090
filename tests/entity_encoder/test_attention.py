"""Claims about how attention is computed, and where which strategy is taken."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from entity_encoder import EntityTransformer
from entity_encoder.attention import attention_maps, explain_strategy, self_attention
from entity_encoder.layout import Layout, dense_layout, packed_layouts
from entity_encoder.pinning import pinned_sdpa
from tests.entity_encoder.strategies import CPU_STRATEGIES, assert_close

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def _layout(name: str, mask: Tensor) -> Layout:
    return dense_layout(mask) if name == "dense" else packed_layouts(mask, strategy=name)[0]


@pytest.mark.parametrize("name", CPU_STRATEGIES)
def test_numbers_by_hand(name: str) -> None:
    # One head of width 1. Set 0: slots 0 and 2 with q = (1, 2), k = (0, ln 3), v = (4, 8).
    ln3 = math.log(3.0)
    qkv = torch.tensor([[[1, 0, 4], [9, 9, 9], [2, ln3, 8]], [[5, 5, 7], [9, 9, 9], [9, 9, 9]]])
    mask = torch.tensor([[True, False, True], [True, False, False]])
    layout = _layout(name, mask)
    out = self_attention(layout.pick(qkv), layout, 1)
    rows = out[mask] if name == "dense" else out[[1, 2, 0]]  # packed: the small set comes first
    # Slot 0 weighs exp(0) : exp(ln 3) = 1 : 3, slot 2 weighs 1 : exp(2 ln 3) = 1 : 9.
    expected = torch.tensor([(4 + 3 * 8) / 4, (4 + 9 * 8) / 10, 7.0])
    torch.testing.assert_close(rows[:, 0], expected)
    maps = attention_maps(layout.pick(qkv), layout, 1)
    wanted = torch.zeros(2, 1, 3, 3)
    wanted[0, 0, 0, [0, 2]] = torch.tensor([1 / 4, 3 / 4])
    wanted[0, 0, 2, [0, 2]] = torch.tensor([1 / 10, 9 / 10])
    wanted[1, 0, 0, 0] = 1
    torch.testing.assert_close(maps, wanted)


@pytest.mark.parametrize("name", ["groups", "fast", "padded", "dense"])
def test_a_strategy_that_was_asked_for_is_taken(name: str) -> None:
    chosen, reason = explain_strategy(name, device=CPU, dtype=torch.float32, capturing=False)
    assert chosen == name
    assert reason == f"attention={name!r} was asked for"


@pytest.mark.parametrize(
    ("device", "dtype", "capturing", "expected", "because"),
    [
        (CPU, torch.float32, False, "groups", "without a mask"),
        (CPU, torch.float32, True, "dense", "static shapes"),
        (CUDA, torch.bfloat16, False, "varlen", "sets of different lengths"),
        (CUDA, torch.float32, False, "padded", "no kernel for ragged sets"),
        (CUDA, torch.float16, True, "dense", "static shapes"),
    ],
)
def test_auto_chooses_by_device_type_and_route(
    device: torch.device, dtype: torch.dtype, capturing: bool, expected: str, because: str
) -> None:
    chosen, reason = explain_strategy("auto", device=device, dtype=dtype, capturing=capturing)
    assert chosen == expected
    assert because in reason


@pytest.mark.parametrize(("device", "dtype"), [(CPU, torch.bfloat16), (CUDA, torch.float32)])
def test_varlen_is_refused_where_it_does_not_exist(
    device: torch.device, dtype: torch.dtype
) -> None:
    with pytest.raises(
        ValueError, match="varlen' must run on a CUDA device in bfloat16 or float16"
    ):
        explain_strategy("varlen", device=device, dtype=dtype, capturing=False)
    if device == CPU:
        with pytest.raises(ValueError, match="float32 on cpu; use attention='auto'"):
            EntityTransformer(3, attention="varlen")(torch.zeros(2, 4, 3))


BACKENDS = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]


@pytest.mark.parametrize("name", CPU_STRATEGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_kernel_is_finite_and_close(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    transformer = EntityTransformer(5, d_model=16, n_heads=2, attention=name)
    x, mask = torch.randn(4, 7, 5), torch.rand(4, 7) < 0.5
    mask[2] = False
    expected = transformer(x, mask)
    transformer.to(dtype)
    for backend in BACKENDS:
        with sdpa_kernel(backend):
            out = transformer(x.to(dtype), mask)
        tolerance = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}[dtype]
        assert_close(out, expected, tolerance, backend.name)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 2, 0, 4), (2, 0, 3, 4)])
def test_zero_sized_inputs_give_zero_sized_outputs_or_zeros(sizes: tuple[int, ...]) -> None:
    sets, heads, keys, width = sizes
    q = torch.randn(sets, heads, 5, width, requires_grad=True)
    k = torch.randn(sets, heads, keys, width)
    out = pinned_sdpa(q, k, k)
    assert out.shape == q.shape
    assert (out == 0).all()
    out.sum().backward()
    assert q.grad is not None


@pytest.mark.parametrize(("heads", "width"), [(3, 5), (1, 32), (4, 8), (2, 6)])
@pytest.mark.parametrize("rows", [None, 1, 3])
def test_a_set_is_bit_equal_alone_and_in_a_batch(heads: int, width: int, rows: int | None) -> None:
    torch.manual_seed(0)
    for size in (2, 5, 9, 13, 31, 33):
        q = torch.randn(5, heads, size if rows is None else rows, width)
        k, v = torch.randn(2, 5, size, heads, width).transpose(2, 3).unbind(0)
        together = pinned_sdpa(q, k, v)
        scores = q @ k.transpose(-2, -1) / width**0.5
        torch.testing.assert_close(together, scores.softmax(-1) @ v)
        for i in range(5):
            assert torch.equal(pinned_sdpa(q[i:][:1], k[i:][:1], v[i:][:1])[0], together[i])
