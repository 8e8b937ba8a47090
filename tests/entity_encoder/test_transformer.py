"""Claims about the tensor-level transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from entity_encoder import EntityTransformer
from entity_encoder.transformer import ACTIVATIONS, Block, TransformerStack
from tests.entity_encoder.reference import Weights, transform
from tests.entity_encoder.strategies import CPU_STRATEGIES, assert_close

CORES = ("attention", "induced", "latent", "pool")


def _transformer(**options: Any) -> EntityTransformer:
    """Build one with odd sizes: 5 columns, width 12, 3 heads, hidden 7."""
    torch.manual_seed(0)
    options = {"d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 7, "n_points": 3, **options}
    transformer = EntityTransformer(5, **options)
    with torch.no_grad():
        for parameter in transformer.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return transformer


def _sets(batch: int = 4, slots: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(batch, slots, 5)).astype(np.float32))
    mask = torch.from_numpy(rng.random((batch, slots)) < 0.6)
    mask[1:2] = False
    return x, mask


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_values_are_those_of_the_definition(attention: str, core: str, norm: str) -> None:
    transformer = _transformer(
        attention=attention, core=core, norm=norm, activation="gelu"
    ).double()
    x, mask = _sets()
    with torch.no_grad():  # the path of a rollout; the other one is in the property tests
        out = transformer(x.double(), mask)
    weights = Weights(transformer)
    for i in range(len(x)):
        rows = [weights.linear("embed", row) for row in x[i][mask[i]].double().numpy()]
        if rows:
            rows = transform(
                weights.at("stack"),
                rows,
                n_layers=2,
                n_heads=3,
                norm=norm,
                activation="gelu",
                core=core,
            )
        expected = np.zeros((6, 12))
        expected[mask[i].numpy()] = np.reshape(rows, (-1, 12))
        np.testing.assert_allclose(out[i], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
@settings(max_examples=10)
@given(
    shape=st.tuples(st.integers(0, 4), st.integers(0, 9)),
    core=st.sampled_from(CORES),
    junk=st.sampled_from([1e30, np.inf, np.nan]),
    seed=st.integers(0, 999),
)
def test_padding_is_unobservable(
    attention: str, shape: tuple[int, int], core: str, junk: float, seed: int
) -> None:
    transformer = _transformer(attention=attention, core=core)
    x, mask = _sets(*shape, seed=seed)
    slopes = []
    for filler in (0.0, junk):
        table = torch.where(mask[..., None], x, filler).requires_grad_()
        transformer.zero_grad()
        out = transformer(table, mask)
        assert (out[~mask] == 0).all()
        out.sin().sum().backward()
        assert table.grad is not None
        slopes.append([out.detach(), table.grad, *(p.grad for p in transformer.parameters())])
    for clean, dirty in zip(*slopes, strict=True):
        assert (clean is None) == (dirty is None)
        if clean is not None and dirty is not None:
            assert torch.isfinite(dirty).all()
            assert torch.equal(clean, dirty)


@pytest.mark.parametrize("lead", [(), (3,), (2, 5), (0,), (4, 0)])
def test_leading_dimensions_are_free(lead: tuple[int, ...]) -> None:
    transformer = _transformer()
    x = torch.randn(*lead, 7, 5)
    mask = torch.rand(*lead, 7) < 0.5
    out = transformer(x, mask)
    assert out.shape == (*lead, 7, 12)
    flat = transformer(x.reshape(-1, 7, 5), mask.reshape(-1, 7))
    assert torch.equal(out.reshape(-1, 7, 12), flat)


def test_no_mask_means_that_all_are_present() -> None:
    transformer, (x, _) = _transformer(), _sets()
    assert torch.equal(transformer(x), transformer(x, torch.ones(4, 6)))
    assert transformer(torch.zeros(4, 0, 5)).shape == (4, 0, 12)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float32])
def test_every_mask_dtype_means_the_same(dtype: torch.dtype) -> None:
    transformer, (x, mask) = _transformer(), _sets()
    assert torch.equal(transformer(x, mask.to(dtype)), transformer(x, mask))


def test_one_perturbed_entity_reaches_its_set_and_no_other() -> None:
    transformer, (x, mask) = _transformer(), _sets()
    mask[:] = torch.tensor([1, 0, 1, 1, 0, 1]) == 1
    moved = x.clone()
    moved[2, 3] += 1
    changed = (transformer(moved, mask) != transformer(x, mask)).any(-1)
    assert changed.tolist() == [[False] * 6] * 2 + [mask[2].tolist()] + [[False] * 6]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_go_by_name(name: str) -> None:
    transformer, (x, mask) = _transformer(activation=name), _sets()
    assert torch.isfinite(transformer(x, mask)).all()
    layer = transformer.stack.layers[0]
    assert isinstance(layer, Block)
    assert type(layer.activation) is type(ACTIVATIONS[name]())


def test_dropout_acts_in_training_only() -> None:
    x, mask = _sets()
    for core in CORES:
        transformer = _transformer(dropout=0.5, core=core)
        assert not torch.equal(transformer(x, mask), transformer(x, mask))
        transformer.eval()
        plain = _transformer(core=core)
        assert torch.equal(transformer(x, mask), plain(x, mask))


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
def test_dropout_keeps_padding_out(attention: str) -> None:
    transformer, (x, mask) = _transformer(dropout=0.5, attention=attention), _sets()
    out = transformer(torch.where(mask[..., None], x, np.nan), mask)
    assert torch.isfinite(out).all()
    assert (out[~mask] == 0).all()


def test_no_layers_leave_the_embedding_and_the_final_norm() -> None:
    transformer, (x, mask) = _transformer(n_layers=0), _sets()
    expected = transformer.stack.final_norm(transformer.embed(x))
    torch.testing.assert_close(transformer(x, mask)[mask], expected[mask])


@pytest.mark.parametrize("depth", [1, 12])
def test_a_fresh_stack_keeps_unit_scale_at_any_depth(depth: int) -> None:
    torch.manual_seed(0)
    transformer = EntityTransformer(32, d_model=32, n_layers=depth)
    before: list[Tensor] = []
    transformer.stack.final_norm.register_forward_hook(
        lambda module, inputs, output: before.append(inputs[0])
    )
    transformer(torch.randn(16, 9, 32))
    assert 0.5 < float(before[0].detach().std()) < 4


def test_large_sets_cost_no_square_outside_full_attention() -> None:
    """4,096 entities: scores of full attention alone would be 2 heads * 4096^2 * 4 B = 134 MB."""
    x = torch.randn(1, 4096, 3)
    for core in CORES[1:]:
        transformer = EntityTransformer(3, d_model=8, n_heads=2, n_layers=1, core=core)
        out = transformer(x)
        out.sum().backward()
        assert torch.isfinite(out).all()


def test_strategies_share_weights_and_results() -> None:
    x, mask = _sets(7, 11)
    states = [_transformer(attention=name).state_dict() for name in CPU_STRATEGIES]
    assert all(state.keys() == states[0].keys() for state in states)
    expected = _transformer(attention="groups")(x, mask)
    for name in CPU_STRATEGIES:
        assert_close(_transformer(attention=name)(x, mask), expected, 1e-5, name)


def test_what_does_not_fit_is_refused() -> None:
    transformer = EntityTransformer(5)
    with pytest.raises(ValueError, match=r"x must have shape \(..., N, 5\), got \(2, 3, 4\)"):
        transformer(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"x must have shape \(..., N, 5\), got \(5,\)"):
        transformer(torch.zeros(5))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 3\), got \(2, 4\)"):
        transformer(torch.zeros(2, 3, 5), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="must hold exactly 0 and 1, got 3"):
        transformer(torch.zeros(1, 2, 5), torch.tensor([[1, 3]]))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"d_model": 10, "n_heads": 3}, "divisible by n_heads, got d_model=10, n_heads=3"),
    ({"n_heads": 0}, "divisible by n_heads, got d_model=64, n_heads=0"),
    ({"d_model": 0}, "d_model must be at least 1, got 0"),
    ({"d_ff": 0}, "d_ff must be at least 1, got 0"),
    ({"n_layers": -1}, "n_layers must be at least 0, got -1"),
    ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1\.0"),
    ({"norm": "per"}, r"norm must be one of \['pre', 'post'\], got 'per'; did you mean 'pre'"),
    ({"activation": "rely"}, "activation must be one of .* got 'rely'; did you mean 'relu'"),
    ({"core": "latents"}, "core must be one of .* got 'latents'; did you mean 'latent'"),
    ({"core": "induced", "n_points": 0}, "n_points must be at least 1, got 0"),
    ({"core": "ego"}, r"core='ego' must know the ego entity.*EntityEncoder\(..., core='ego'\)"),
    ({"attention": "grups"}, "attention must be one of .* got 'grups'; did you mean 'groups'"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda x: str(x)[:40])
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EntityTransformer(5, **options)


def test_post_norm_ends_without_a_final_norm() -> None:
    stack = TransformerStack(8, n_heads=2, n_layers=1, norm="post")
    assert isinstance(stack.final_norm, nn.Identity)
