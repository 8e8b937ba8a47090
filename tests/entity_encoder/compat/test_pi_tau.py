"""Claims about the drop-in for pi-tau's encoder block."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from entity_encoder.compat.pi_tau import EncoderBlock
from tests.entity_encoder.compat.reference import (
    Weights,
    attend,
    each_set,
    layer_norm,
    linear,
    pre_norm_set,
    relu,
)
from tests.entity_encoder.compat.test_ding import gradients, random_sets, weights_of

Norm = tuple[Weights, str]


@pytest.mark.parametrize("residual", ["input", "normalised"])
@pytest.mark.parametrize("seed", range(10))
def test_entities_agree_with_the_float64_reference(residual: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads = int(rng.integers(1, 5))
    d, hidden = heads * int(rng.integers(1, 8)), int(rng.integers(1, 24))
    torch.manual_seed(seed)
    block = EncoderBlock(d, heads, hidden, 0.0, residual=residual)
    x, mask = random_sets(rng, 5, int(rng.integers(1, 9)), d)
    weights = weights_of(block)
    expected = each_set(
        x,
        mask,
        d,
        lambda s: pre_norm_set(s, weights, heads=heads, normalised=residual == "normalised"),
    )
    out = block(torch.from_numpy(x), torch.from_numpy(mask)).detach().numpy()
    # A width of 1 or 2 makes layer norm divide by almost nothing.
    np.testing.assert_allclose(out, expected, atol=2e-5, rtol=2e-5)
    assert (out[~mask] == 0).all()


def test_the_state_dict_has_the_originals_keys_and_shapes() -> None:
    shapes = {key: tuple(value.shape) for key, value in EncoderBlock(6, 2, 11).state_dict().items()}
    assert shapes == {
        "attn.Q.weight": (6, 6),
        "attn.K.weight": (6, 6),
        "attn.V.weight": (6, 6),
        "attn.Wo.weight": (6, 6),
        "attn.Wo.bias": (6,),
        "attn_norm.weight": (6,),
        "attn_norm.bias": (6,),
        "mlp.0.weight": (11, 6),
        "mlp.0.bias": (11,),
        "mlp.2.weight": (6, 11),
        "mlp.2.bias": (6,),
        "mlp_norm.weight": (6,),
        "mlp_norm.bias": (6,),
    }


@pytest.mark.parametrize("residual", ["input", "normalised"])
def test_padding_neither_moves_valid_entities_nor_gets_gradient(residual: str) -> None:
    torch.manual_seed(1)
    block = EncoderBlock(6, 2, 11, residual=residual)
    x, mask = (torch.from_numpy(part) for part in random_sets(np.random.default_rng(3), 4, 10, 6))
    results = []
    for filler in (0.0, 5.0, math.nan):
        filled = torch.where(mask[..., None], x, filler).requires_grad_()
        block.zero_grad()
        out = block(filled, mask)
        out.square().sum().backward()
        assert filled.grad is not None
        assert (filled.grad[~mask] == 0).all()
        results.append([out, filled.grad, *gradients(block)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a, b)


def test_the_normalised_residual_is_post_norm_in_disguise() -> None:
    # L blocks and a final norm equal a norm of the input followed by L post-norm layers, each
    # with the norms moved by one place.
    torch.manual_seed(2)
    blocks = [EncoderBlock(6, 2, 11, residual="normalised").double() for _ in range(3)]
    final = nn.LayerNorm(6).double()
    for module in [*blocks, final]:
        for p in module.parameters():
            nn.init.normal_(p, std=0.7)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    out = x
    for block in blocks:
        out = block(out)
    out = final(out)

    weights = [weights_of(block) for block in blocks]
    h = layer_norm(x[0].numpy(), weights[0], "attn_norm")
    norms = [(w, "mlp_norm") for w in weights]
    after = [(w, "attn_norm") for w in weights[1:]]
    ending = {
        "norm.weight": final.weight.detach().numpy(),
        "norm.bias": final.bias.detach().numpy(),
    }
    for w, inner, outer in zip(weights, norms, [*after, (ending, "norm")], strict=True):
        h = _post_norm_layer(h, w, inner, outer)
    np.testing.assert_allclose(out[0].detach().numpy(), h, atol=1e-10)


def _post_norm_layer(h: np.ndarray, w: Weights, inner: Norm, outer: Norm) -> np.ndarray:
    q, k, v = (linear(h, w, f"attn.{name}") for name in "QKV")
    h = layer_norm(h + linear(attend(q, k, v, 2), w, "attn.Wo"), *inner)
    return layer_norm(h + linear(relu(linear(h, w, "mlp.0")), w, "mlp.2"), *outer)


def test_scale_survives_the_true_residual_and_is_lost_in_the_other() -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 5, 6)
    moved = {}
    for residual in ("input", "normalised"):
        block = EncoderBlock(6, 2, 11, residual=residual)
        moved[residual] = (block(10 * x) - block(x)).abs().max().item()
    assert moved["input"] > 1
    assert moved["normalised"] < 1e-4


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_masks_of_every_dtype_mean_the_same(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    block = EncoderBlock(6, 2, 11)
    x, mask = (torch.from_numpy(part) for part in random_sets(np.random.default_rng(3), 4, 5, 6))
    assert torch.equal(block(x, mask.to(dtype)), block(x, mask))
    full = torch.ones(4, 5, dtype=dtype)
    assert torch.equal(block(x, full), block(x))


@pytest.mark.parametrize("attention", ["auto", "dense"])
@pytest.mark.parametrize("shape", [(0, 5, 6), (4, 0, 6), (2, 3, 6)])
def test_empty_sets_and_batches_work(attention: str, shape: tuple[int, ...]) -> None:
    block = EncoderBlock(6, 2, 11, attention=attention)
    x = torch.randn(shape, requires_grad=True)
    out = block(x, torch.zeros(shape[:2], dtype=torch.bool))
    assert out.shape == shape
    assert (out == 0).all()
    out.sum().backward()
    assert x.grad is not None
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in block.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_works_with_a_mask(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    block = EncoderBlock(8, 2, 11)
    x, mask = (torch.from_numpy(part) for part in random_sets(np.random.default_rng(3), 4, 5, 8))
    expected = block(x, mask)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(block(x, mask).float(), expected, atol=6e-2, rtol=6e-2)
    out = block.to(dtype)(x.to(dtype), mask)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, atol=6e-2, rtol=6e-2)


def test_dropout_is_off_in_eval_and_on_in_training() -> None:
    torch.manual_seed(1)
    block, plain = EncoderBlock(6, 2, 11, 0.5), EncoderBlock(6, 2, 11)
    plain.load_state_dict(block.state_dict())
    x = torch.randn(2, 5, 6)
    assert torch.equal(block.eval()(x), plain(x))
    assert not torch.equal(block.train()(x), plain(x))


def test_misfits_are_named() -> None:
    with pytest.raises(ValueError, match="divisible by n_heads, got d_model=7, n_heads=2"):
        EncoderBlock(7, 2, 11)
    with pytest.raises(ValueError, match=r"residual must be one of .* 'normalized'; did you mean"):
        EncoderBlock(6, 2, 11, residual="normalized")
    block = EncoderBlock(6, 2, 11)
    with pytest.raises(ValueError, match=r"x must have shape \(B, T, D\), got \(4, 6\)"):
        block(torch.zeros(4, 6))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 4\), got \(2, 4, 1\)"):
        block(torch.zeros(2, 4, 6), torch.ones(2, 4, 1))
