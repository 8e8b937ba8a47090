"""Claims about the drop-in for DI-engine's transformer."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from entity_encoder.compat.ding import (
    Attention,
    ScaledDotProductAttention,
    Transformer,
    TransformerLayer,
)
from tests.entity_encoder.compat.reference import attend, ding_layer, ding_set, each_set, relu


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    return {key: value.double().numpy() for key, value in module.state_dict().items()}


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def random_sets(
    rng: np.random.Generator, batch: int, slots: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(batch, slots, width)).astype(np.float32)
    mask = rng.random((batch, slots)) < 0.6
    mask[0] = False  # one empty set in every batch
    mask[-1, 0] = True
    return x, mask


def shape_table(
    *, c: int, d: int, hd: int, h: int, hidden: int, mlp_num: int, layers: int
) -> dict[str, tuple[int, ...]]:
    """The keys and shapes of DI-engine's state dict."""
    table: dict[str, tuple[int, ...]] = {"embedding.0.weight": (d, c), "embedding.0.bias": (d,)}
    for i in range(layers):
        table[f"main.{i}.attention.attention_pre.0.weight"] = (3 * h * hd, d)
        table[f"main.{i}.attention.attention_pre.0.bias"] = (3 * h * hd,)
        table[f"main.{i}.attention.project.0.weight"] = (d, h * hd)
        table[f"main.{i}.attention.project.0.bias"] = (d,)
        for norm in ("layernorm1", "layernorm2"):
            table[f"main.{i}.{norm}.weight"] = table[f"main.{i}.{norm}.bias"] = (d,)
        widths = [d, *[hidden] * (mlp_num - 1), d]
        for j in range(mlp_num):
            table[f"main.{i}.mlp.{2 * j}.0.weight"] = (widths[j + 1], widths[j])
            table[f"main.{i}.mlp.{2 * j}.0.bias"] = (widths[j + 1],)
    return table


def by_formula(table: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """A state dict that anybody can rebuild: waves, with norms around 1."""
    state = {}
    for k, (name, shape) in enumerate(table.items()):
        wave = torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * 0.7 + k)
        fan_in = shape[-1] if len(shape) > 1 else 16
        base = 1.0 if "layernorm" in name and name.endswith("weight") else 0.0
        state[name] = (base + wave / math.sqrt(fan_in)).float().view(shape)
    return state


@pytest.mark.parametrize("seed", range(24))
def test_valid_entities_agree_with_the_float64_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c, d, hd, hidden = (int(rng.integers(1, 24)) for _ in range(4))
    h, mlp_num, layers = int(rng.integers(1, 5)), 1 + seed % 4, 1 + seed % 6
    torch.manual_seed(seed)
    model = Transformer(c, hd, hidden, d, h, mlp_num, layers).eval()
    x, mask = random_sets(rng, 5, int(rng.integers(1, 9)), c)
    expected = each_set(
        x,
        mask,
        d,
        lambda s: ding_set(s, weights_of(model), heads=h, layers=layers, mlp_num=mlp_num, act=relu),
    )
    with torch.no_grad():
        out = model(torch.from_numpy(x), torch.from_numpy(mask)).numpy()
    np.testing.assert_allclose(out, expected, atol=1e-5, rtol=1e-5)
    assert (out[~mask] == 0).all()


def test_the_default_geometry_agrees_with_the_float64_reference() -> None:
    torch.manual_seed(0)
    model = Transformer(32).eval()
    x, mask = random_sets(np.random.default_rng(0), 3, 7, 32)
    weights = weights_of(model)
    expected = each_set(
        x, mask, 256, lambda s: ding_set(s, weights, heads=2, layers=3, mlp_num=2, act=relu)
    )
    out = model(torch.from_numpy(x), torch.from_numpy(mask)).detach().numpy()
    np.testing.assert_allclose(out, expected, atol=1e-5, rtol=1e-5)


def test_the_state_dict_has_di_engines_keys_and_shapes() -> None:
    model = Transformer(32)
    expected = shape_table(c=32, d=256, hd=128, h=2, hidden=1024, mlp_num=2, layers=3)
    assert {k: tuple(v.shape) for k, v in model.state_dict().items()} == expected
    assert len(expected) == 38
    assert sum(p.numel() for p in model.parameters()) == 2_377_728
    assert not list(model.buffers())


@pytest.mark.parametrize("mlp_num", [1, 2, 4])
def test_foreign_weights_load_and_give_the_reference_output(mlp_num: int) -> None:
    sizes = {"c": 3, "d": 7, "hd": 5, "h": 2, "hidden": 11, "mlp_num": mlp_num, "layers": 2}
    state = by_formula(shape_table(**sizes))
    model = Transformer(3, 5, 11, 7, 2, mlp_num, 2).eval()
    model.load_state_dict(state)  # strict
    x, mask = random_sets(np.random.default_rng(1), 4, 6, 3)
    weights = {key: value.double().numpy() for key, value in state.items()}
    expected = each_set(
        x, mask, 7, lambda s: ding_set(s, weights, heads=2, layers=2, mlp_num=mlp_num, act=relu)
    )
    out = model(torch.from_numpy(x), torch.from_numpy(mask))
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-5, rtol=1e-5)


def test_a_parametric_activation_is_one_parameter_under_its_shared_keys() -> None:
    model = Transformer(3, 5, 11, 7, 2, 2, 3, activation=nn.PReLU(init=0.1)).eval()
    shared = [key for key, value in model.state_dict().items() if value.numel() == 1]
    assert sorted(shared) == sorted(
        ["act.weight", "embedding.1.weight"]
        + [f"main.{i}.mlp.{2 * j}.1.weight" for i in range(3) for j in range(2)]
    )
    assert len(list(model.parameters())) == 39
    state = by_formula(shape_table(c=3, d=7, hd=5, h=2, hidden=11, mlp_num=2, layers=3))
    model.load_state_dict({**state, **{key: torch.tensor([0.3]) for key in shared}})
    x, mask = random_sets(np.random.default_rng(2), 4, 6, 3)
    weights = {key: value.double().numpy() for key, value in state.items()}
    expected = each_set(
        x,
        mask,
        7,
        lambda s: ding_set(
            s, weights, heads=2, layers=3, mlp_num=2, act=lambda z: np.where(z > 0, z, 0.3 * z)
        ),
    )
    out = model(torch.from_numpy(x), torch.from_numpy(mask))
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("with_mask", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_di_engines_own_checks_pass(with_mask: bool, seed: int) -> None:
    torch.manual_seed(seed)  # among these seeds some rows of the mask are all False
    batch, entities, channels = 2, 2, 2
    mask = torch.rand(batch, entities) > 0.5 if with_mask else None
    model = Transformer(
        input_dim=channels,
        head_dim=2,
        hidden_dim=3,
        output_dim=4,
        head_num=2,
        mlp_num=2,
        layer_num=2,
    )
    x = torch.randn(batch, entities, channels).requires_grad_(True)
    output = model(x, mask)
    loss = output.mean()
    assert x.grad is None
    loss.backward()
    assert isinstance(x.grad, torch.Tensor)
    assert output.shape == (batch, entities, 4)


@pytest.mark.parametrize("attention", ["auto", "groups", "fast", "padded", "dense"])
@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e30])
def test_padding_is_never_read(attention: str, junk: float) -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 7, 2, 2, 2, attention=attention)
    x, mask = (torch.from_numpy(part) for part in random_sets(np.random.default_rng(3), 4, 6, 3))
    results = []
    for filler in (0.0, junk):
        model.zero_grad()
        filled = torch.where(mask[..., None], x, filler).requires_grad_()
        out = model(filled, mask)
        out.square().sum().backward()
        assert filled.grad is not None
        results.append([out, filled.grad, *gradients(model)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    assert (results[0][1][~mask] == 0).all()


def test_an_unmasked_mean_is_not_bent_by_padded_rows() -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 7, 2, 2, 2).eval()
    x = torch.randn(1, 4, 3)
    padded = torch.cat([x, torch.zeros(1, 12, 3)], 1)
    mask = torch.arange(16)[None] < 4
    torch.testing.assert_close(model(padded, mask).sum(1) / 4, model(x).mean(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_works_with_a_mask(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 8, 2, 2, 2).eval()
    x, mask = (torch.from_numpy(part) for part in random_sets(np.random.default_rng(3), 4, 6, 3))
    expected = model(x, mask)
    out = copy.deepcopy(model).to(dtype)(x.to(dtype), mask)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, atol=6e-2, rtol=6e-2)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(model(x, mask).float(), expected, atol=6e-2, rtol=6e-2)


@pytest.mark.parametrize("attention", ["auto", "dense"])
@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (0, 0, 3)])
def test_no_sets_and_no_slots_work(attention: str, shape: tuple[int, ...]) -> None:
    model = Transformer(3, 5, 11, 7, 2, 2, 2, attention=attention)
    for mask in (None, torch.zeros(shape[:2], dtype=torch.bool)):
        x = torch.zeros(shape, requires_grad=True)
        out = model(x, mask)
        assert out.shape == (*shape[:2], 7)
        out.sum().backward()
        assert x.grad is not None


def test_an_empty_set_attends_to_nothing() -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 7, 2, 2, 2)
    mask = torch.zeros(2, 4, dtype=torch.bool)
    out = model(torch.randn(2, 4, 3), mask)
    assert (out == 0).all()
    out.sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float32])
def test_masks_of_every_dtype_mean_the_same(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 7, 2, 2, 2)
    x, mask = (torch.from_numpy(part) for part in random_sets(np.random.default_rng(3), 4, 6, 3))
    assert torch.equal(model(x, mask.to(dtype)), model(x, mask))


def test_the_mask_has_an_effect() -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 7, 2, 2, 2)
    x, mask = torch.randn(1, 4, 3), torch.tensor([[True, True, False, False]])
    assert not torch.allclose(model(x, mask)[:, :2], model(x)[:, :2])


def test_misfits_are_named() -> None:
    model = Transformer(3, 5, 11, 7)
    with pytest.raises(ValueError, match=r"x must have shape \(B, N, C\), got \(4, 3\)"):
        model(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 4\), got \(4, 2\)"):
        model(torch.zeros(2, 4, 3), torch.ones(4, 2))
    with pytest.raises(ValueError, match="must hold exactly 0 and 1"):
        model(torch.zeros(2, 4, 3), torch.full((2, 4), 0.5))


def test_models_share_no_module() -> None:
    a, b = Transformer(3, 5, 11, 7), Transformer(3, 5, 11, 7)
    given = nn.PReLU()
    c, d = (Transformer(3, 5, 11, 7, activation=given) for _ in range(2))
    for one, two in ((a, b), (c, d)):
        assert not {id(m) for m in one.modules()} & {id(m) for m in two.modules()}
    assert id(given) not in {id(m) for m in c.modules()}


def test_every_dropout_is_its_own_and_applied_once() -> None:
    model = Transformer(3, 5, 11, 7, 2, 2, 3, dropout_ratio=0.25)
    # The embedding's; per layer the weights', the attention branch's and one per MLP layer.
    dropouts = [m for m in model.modules() if isinstance(m, nn.Dropout)]
    assert len(dropouts) == len({id(m) for m in dropouts}) == 1 + 3 * (2 + 2)
    assert all(m.p == 0.25 for m in dropouts)
    seen: list[str] = []
    for name, module in model.main[0].named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    model(torch.randn(2, 4, 3))
    assert seen == ["dropout", "mlp.1", "mlp.3"]


def test_dropout_is_off_in_eval_and_on_in_training() -> None:
    torch.manual_seed(1)
    model = Transformer(3, 5, 11, 7, 2, 2, 2, dropout_ratio=0.5)
    plain = Transformer(3, 5, 11, 7, 2, 2, 2)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(2, 4, 3)
    assert torch.equal(model.eval()(x), plain(x))
    assert not torch.equal(model.train()(x), plain(x))


def test_new_models_start_like_a_row_of_linear_layers_would() -> None:
    # The order in which layers draw their weights: embedding, then per layer qkv, project, MLP.
    torch.manual_seed(7)
    model = Transformer(3, 5, 11, 7, 2, 2, 1)
    torch.manual_seed(7)
    layers = [nn.Linear(*s) for s in ((3, 7), (7, 30), (10, 7), (7, 11), (11, 7))]
    ours = [m for m in model.modules() if isinstance(m, nn.Linear)]
    for a, b in zip(ours, layers, strict=True):
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.bias, b.bias)


def layer(**options: Any) -> TransformerLayer:
    return TransformerLayer(7, 5, 11, 7, 2, 3, nn.Dropout(0.0), nn.ReLU(), **options)


def test_a_single_layer_takes_and_returns_the_pair_of_entities_and_mask() -> None:
    torch.manual_seed(1)
    block = layer()
    keys = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
    mask = keys[:, None, None, :].expand(2, 1, 4, 4)  # (B, 1, N, N), as DI-engine builds it
    x = torch.randn(2, 4, 7)
    out, same = block((x, mask))
    assert same is mask
    weights = {f"main.0.{key}": value for key, value in weights_of(block).items()}
    expected = each_set(
        x.numpy(),
        keys.numpy(),
        7,
        lambda s: ding_layer(s, weights, "main.0", heads=2, mlp_num=3, act=relu),
    )
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-5)
    chained, _ = nn.Sequential(layer(), layer())((x, None))
    assert chained.shape == (2, 4, 7)


def test_layer_level_padding_is_never_read() -> None:
    torch.manual_seed(1)
    block = layer()
    keys = torch.tensor([[True, True, False, True]])
    mask = keys[:, None, None, :].expand(1, 1, 4, 4)
    x = torch.randn(1, 4, 7)
    poisoned = torch.where(keys[..., None], x, math.nan).requires_grad_()
    out, _ = block((poisoned, mask))
    out.sum().backward()
    assert torch.equal(out, block((x, mask))[0])
    assert all(torch.isfinite(p.grad).all() for p in block.parameters() if p.grad is not None)


def test_attention_follows_a_mask_per_query() -> None:
    torch.manual_seed(1)
    module = Attention(7, 5, 3, 2, nn.Dropout(0.0))
    x = torch.randn(2, 4, 7)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()  # each may look back, not ahead
    out = module(x, mask.expand(2, 1, 4, 4))
    assert out.shape == (2, 4, 3)
    for n in range(1, 5):
        torch.testing.assert_close(module(x[:, :n])[:, -1], out[:, n - 1])
    assert torch.equal(module(x, mask.expand(2, 1, 4, 4).float()), out)


def test_split_cuts_rows_into_heads() -> None:
    module = Attention(7, 5, 3, 2, nn.Dropout(0.0))
    x = torch.arange(2 * 4 * 10).view(2, 4, 10)
    heads = module.split(x)
    assert heads.shape == (2, 2, 4, 5)
    assert torch.equal(heads[1, 1, 2], x[1, 2, 5:])
    assert torch.equal(module.split(x, T=True), heads.transpose(2, 3))


def test_scaled_dot_product_attention_scales_by_its_own_width() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(1, 1, n, 8)) for n in (3, 5, 5))
    module = ScaledDotProductAttention(d_k=32)
    # sqrt(32) = 2 sqrt(8): the same as halved queries at the usual scale.
    expected = attend(q[0, 0] / 2, k[0, 0], v[0, 0], heads=1)
    tensors = [torch.from_numpy(part) for part in (q, k, v)]
    np.testing.assert_allclose(module(*tensors)[0, 0].numpy(), expected, atol=1e-12)
    keys = np.array([True, False, True, True, False])
    shown = attend(q[0, 0] / 2, k[0, 0, keys], v[0, 0, keys], heads=1)
    mask = torch.from_numpy(keys).view(1, 1, 1, 5).expand(1, 1, 3, 5)
    np.testing.assert_allclose(module(*tensors, mask)[0, 0].numpy(), shown, atol=1e-12)
    hidden = torch.zeros(1, 1, 3, 5, dtype=torch.bool)
    assert (module(*tensors, hidden) == 0).all()


def test_scaled_dot_product_attention_drops_only_while_training() -> None:
    torch.manual_seed(1)
    module = ScaledDotProductAttention(8, dropout=0.5)
    q, k, v = torch.randn(3, 1, 1, 6, 8)
    assert torch.equal(module.eval()(q, k, v), ScaledDotProductAttention(8)(q, k, v))
    assert not torch.equal(module.train()(q, k, v), ScaledDotProductAttention(8)(q, k, v))
