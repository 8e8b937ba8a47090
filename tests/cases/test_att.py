"""Failures of other libraries in attention, masks, encoding and export, by their numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.attention import SDPBackend, sdpa_kernel

from entity_encoder import EntityEncoder, EntityGroup, EntitySchema
from tests.cases.adapter import A
from tests.cases.kinds import TWO_KINDS, learn_in_parallel, two_kinds

POOLS = ("mean", "max", "cls")
Observation = dict[str, Any]


def obs(batch: int = 5, empty: tuple[int, ...] = (), seed: int = 0) -> Observation:
    """Seven slots of six columns, with holes; the sets named in `empty` hold nobody."""
    rng = np.random.default_rng(seed)
    entities = rng.normal(size=(batch, 7, 6)).astype(np.float32)
    mask = (rng.random((batch, 7)) < 0.6).astype(np.int8)
    mask[:, 0] = 1
    if batch > 1:
        mask[1] = [1, 0, 1, 1, 0, 0, 1]
    mask[list(empty)] = 0
    return {"entities": entities, "mask": mask}


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a.detach(), b.detach(), atol=tolerance, rtol=tolerance)


def slopes(encoder: EntityEncoder) -> list[Tensor | None]:
    grads = [None if p.grad is None else p.grad.clone() for p in A.params(encoder)]
    encoder.zero_grad()
    return grads


def same_slopes(a: list[Tensor | None], b: list[Tensor | None]) -> None:
    for x, y in zip(a, b, strict=True):
        assert (x is None) == (y is None)
        if x is not None and y is not None:
            close(x, y)


@pytest.mark.parametrize("pool", POOLS)
def test_att_01_an_empty_set_poisons_nobody(pool: str) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs(64, empty=(3, 17, 40))
    features, _ = A.run(encoder, observation)
    assert torch.isfinite(features).all()
    keep = [i for i in range(64) if i not in (3, 17, 40)]
    features[keep].sum().backward()
    with_empty = slopes(encoder)
    rest, _ = A.run(encoder, {key: value[keep] for key, value in observation.items()})
    assert torch.equal(rest, features[keep])
    rest.sum().backward()
    same_slopes(with_empty, slopes(encoder))
    everybody_died, _ = A.run(encoder, obs(empty=(0, 1, 2, 3, 4)))
    assert torch.isfinite(everybody_died).all()


@pytest.mark.parametrize("pool", POOLS)
def test_att_03_rollout_and_update_compute_the_same(pool: str) -> None:
    observation = obs(4)
    observation["mask"][:] = [1, 1, 1, 1, 0, 0, 0]
    encoder = A.encoder(6, pool=pool)
    act, act_entities = A.run(encoder, observation, mode="eval", grad=False)
    learn, learn_entities = A.run(encoder, observation, mode="train", grad=True)
    assert torch.equal(act, learn)
    assert torch.equal(act_entities, learn_entities)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("junk", [1e30, np.inf, -np.inf, np.nan])
def test_att_05_junk_in_padding_reaches_nothing(pool: str, junk: float) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs(empty=(2,))
    features, entities = A.run(encoder, observation)
    features.sum().backward()
    expected = slopes(encoder)
    dirty = dict(observation, entities=observation["entities"].copy())
    dirty["entities"][observation["mask"] == 0] = junk
    again, again_entities = A.run(encoder, dirty)
    assert torch.equal(again, features)
    assert torch.equal(again_entities, entities)
    again.sum().backward()
    for a, b in zip(slopes(encoder), expected, strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or torch.equal(a, b)


def test_att_07_the_number_that_fills_padding_does_not_matter() -> None:
    encoder, observation = A.encoder(6), obs()
    outs = []
    for filler in (0.0, 1e-10, 1e10):
        filled = np.where(observation["mask"][..., None] == 1, observation["entities"], filler)
        outs.append(A.run(encoder, {**observation, "entities": filled})[0])
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True], ids=["weights", "autocast"])
@pytest.mark.parametrize("pool", POOLS)
def test_att_08_half_precision_survives_a_mask(
    dtype: torch.dtype, autocast: bool, pool: str
) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs(empty=(2,))
    expected, _ = A.run(encoder, observation)
    if not autocast:
        encoder.to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        features, entities = A.run(encoder, observation)
    tolerance = 2e-2 if dtype == torch.float16 else 8e-2  # bfloat16 keeps 8 bits
    close(features.float(), expected, tolerance)
    assert torch.isfinite(entities).all()


def test_att_10_an_empty_set_attends_to_nothing() -> None:
    encoder, first, second = A.encoder(6), obs(3, seed=1), obs(3, seed=2)
    first["mask"][:] = second["mask"][:] = 0
    a, b = A.run(encoder, first)[0], A.run(encoder, second)[0]
    assert torch.equal(a, b)
    assert torch.equal(a, encoder.empty.expand(3, -1))
    maps = encoder(first, return_attention=True).attention
    assert maps is not None
    assert (maps == 0).all()


def test_att_11_one_means_present() -> None:
    encoder, observation = A.encoder(6), obs(1)
    observation["mask"][:] = [1, 0, 1, 1, 0, 0, 0]
    expected, _ = A.run(encoder, observation)
    for slot, present in enumerate(observation["mask"][0]):
        moved = dict(observation, entities=observation["entities"].copy())
        moved["entities"][0, slot] += 1
        assert torch.equal(A.run(encoder, moved)[0], expected) != bool(present)
    complement = dict(observation, mask=1 - observation["mask"])
    assert not torch.allclose(A.run(encoder, complement)[0], expected)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64])
def test_att_12_integer_masks_mean_the_same(dtype: Any) -> None:
    encoder, observation = A.encoder(6), obs(empty=(2,))
    other = dict(observation, mask=observation["mask"].astype(dtype))
    assert torch.equal(A.run(encoder, other)[0], A.run(encoder, observation)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_att_13_float_masks_are_masks_and_no_bias(dtype: Any) -> None:
    encoder, observation = A.encoder(6), obs(empty=(2,))
    other = dict(observation, mask=observation["mask"].astype(dtype))
    assert torch.equal(A.run(encoder, other)[0], A.run(encoder, observation)[0])
    with pytest.raises(ValueError, match="mask 'mask' must hold exactly 0 and 1"):
        A.run(encoder, dict(observation, mask=observation["mask"] * 0.5))


@pytest.mark.parametrize("pool", POOLS)
def test_att_16_the_amount_of_padding_changes_nothing(pool: str) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs()
    expected, _ = A.run(encoder, observation)
    for more in (1, 20):
        wide = {
            "entities": np.pad(observation["entities"], ((0, 0), (0, more), (0, 0))),
            "mask": np.pad(observation["mask"], ((0, 0), (0, more))),
        }
        assert torch.equal(A.run(encoder, wide)[0], expected)


@pytest.mark.parametrize("pool", [*POOLS, "attention", "sum"])
def test_att_18_holes_and_leading_padding_are_no_prefix(pool: str) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs(1)
    keep = np.array([0, 0, 1, 1, 0, 1, 0])
    observation["mask"][:] = keep
    compact = {
        "entities": observation["entities"][:, keep == 1],
        "mask": np.ones((1, 3), np.int8),
    }
    assert torch.equal(A.run(encoder, compact)[0], A.run(encoder, observation)[0])


def test_att_19_the_mean_is_over_entities() -> None:
    x = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]])
    mask = torch.tensor([[1, 1, 0, 0]], dtype=torch.bool)
    assert A.pool(x, mask, "mean").tolist() == [[1.0, 0.0]]  # over slots: [0.5, 1.0]


@pytest.mark.parametrize("pool", [*POOLS, "attention", "sum"])
@pytest.mark.parametrize("slots", [0, 7])
def test_att_21_an_empty_set_has_a_finite_value_and_no_gradient(pool: str, slots: int) -> None:
    encoder = A.encoder(6, pool=pool)
    entities = torch.full((4, slots, 6), np.nan, requires_grad=True)
    features, _ = A.run(encoder, {"entities": entities, "mask": np.zeros((4, slots))})
    assert torch.isfinite(features).all()
    assert torch.equal(features, features[:1].expand(4, -1))
    features.sum().backward()
    assert entities.grad is None or not entities.grad.any()
    for how in ("mean", "max", "sum"):
        assert (A.pool(torch.full((4, slots, 3), np.nan), torch.zeros(4, slots), how) == 0).all()


@pytest.mark.parametrize("core", ["attention", "induced", "latent", "pool"])
def test_att_22_one_kind_may_be_absent_in_every_stage(core: str) -> None:
    torch.manual_seed(0)
    encoder = EntityEncoder(TWO_KINDS, d_model=16, n_heads=2, core=core, pooling="attention")
    clean, dirty = two_kinds(), two_kinds()
    for observation, junk in ((clean, 0.0), (dirty, np.nan)):
        observation["unit_mask"][:] = 0
        observation["unit"][:] = junk
    expected = encoder(clean)
    assert torch.isfinite(expected.pooled).all()
    assert torch.equal(encoder(dirty).pooled, expected.pooled)


@pytest.mark.parametrize("pool", POOLS)
def test_att_24_neighbours_in_the_batch_change_nothing(pool: str) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs(5, empty=(3,))
    together, _ = A.run(encoder, observation)
    for i in range(5):
        alone = {key: value[i : i + 1] for key, value in observation.items()}
        assert torch.equal(A.run(encoder, alone)[0][0], together[i])


@pytest.mark.parametrize("attention", ["groups", "fast", "padded", "dense"])
@pytest.mark.parametrize(("batch", "slots"), [(0, 16), (4, 0), (0, 0)])
def test_att_26_no_batch_and_no_slots_are_fine(attention: str, batch: int, slots: int) -> None:
    schema = EntitySchema((EntityGroup("a", slots, ("x", "y", "z"), "m"),))
    encoder = EntityEncoder(schema, d_model=16, n_heads=2, attention=attention)
    encoding = encoder({"a": np.zeros((batch, slots, 3)), "m": np.zeros((batch, slots))})
    assert encoding.pooled.shape == (batch, 16)
    assert encoding.entities.shape == (batch, slots, 16)
    assert torch.isfinite(encoding.pooled).all()
    encoding.pooled.sum().backward()


@pytest.mark.parametrize("unknown", [-1, 4])
def test_att_28_an_unknown_type_is_named_where_it_is_real(unknown: int) -> None:
    encoder, observation = A.encoder(6, types=4), obs()
    observation["mask"][2] = [1, 1, 0, 1, 1, 1, 1]
    kinds = np.random.default_rng(0).integers(0, 4, (5, 7))
    kinds[2, 4] = unknown
    with pytest.raises(
        ValueError, match=rf"\[0, 4\), got {unknown} in environment 2, key 'entities', slot 4"
    ):
        A.run(encoder, {**observation, "type_id": kinds})
    kinds[2, 4] = 0
    expected, _ = A.run(encoder, {**observation, "type_id": kinds})
    kinds[2, 2] = unknown
    assert torch.equal(A.run(encoder, {**observation, "type_id": kinds})[0], expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_att_30_features_of_any_type_become_float32(dtype: Any) -> None:
    encoder, observation = A.encoder(6), obs()
    rounded = dict(observation, entities=observation["entities"].round())
    other = dict(rounded, entities=rounded["entities"].astype(dtype))
    features, _ = A.run(encoder, other)
    assert features.dtype == torch.float32
    assert torch.equal(features, A.run(encoder, rounded)[0])


def test_att_35_a_kind_that_one_process_lacks_gets_half_a_gradient(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = EntityEncoder(TWO_KINDS, d_model=8, n_heads=2, n_layers=1)
    encoder(two_kinds(seed=0)).pooled.square().mean().backward()
    spawn(learn_in_parallel, (tmp_path,), nprocs=2)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt")
        for name, parameter in encoder.embeddings[1].named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(found[name], parameter.grad / 2)


def test_att_36_shards_may_be_uneven_or_empty() -> None:
    encoder, observation = A.encoder(6), obs(9)
    whole, _ = A.run(encoder, observation)
    cuts = [(0, 3), (3, 6), (6, 9), (9, 9)]  # what a ceiling split gives the fourth of four
    parts = [
        A.run(encoder, {key: value[a:b] for key, value in observation.items()})[0] for a, b in cuts
    ]
    assert parts[3].shape == (0, encoder.output_dim)
    assert torch.equal(torch.cat(parts), whole)


def test_att_37_importing_starts_no_cuda() -> None:
    program = (
        "import torch\n"
        "def refuse(*args): raise SystemExit('CUDA was started')\n"
        "torch.cuda._lazy_init = refuse\n"
        "import entity_encoder, entity_encoder.envs, gymnasium\n"
        "gymnasium.make_vec('Entity/Minefield-v0', 2).reset(seed=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", ["groups", "padded", "varlen", "dense"])
def test_att_38_every_cuda_kernel_agrees(dtype: torch.dtype, attention: str) -> None:
    if attention == "varlen" and dtype == torch.float32:
        return
    encoder, observation = A.encoder(6), obs(empty=(2,))
    expected, _ = A.run(encoder, observation)
    encoder.attention = attention
    encoder.to("cuda", dtype)
    features, _ = A.run(encoder, observation)
    close(features.cpu().float(), expected, 1e-4 if dtype == torch.float32 else 5e-2)
    features.sum().backward()
    for slope in slopes(encoder):
        assert slope is None or torch.isfinite(slope).all()


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("attention", ["groups", "padded", "dense"])
def test_att_38_every_cpu_kernel_agrees(backend: SDPBackend, attention: str) -> None:
    encoder, observation = A.encoder(6), obs(empty=(2,))
    expected, _ = A.run(encoder, observation)
    encoder.attention = attention
    with sdpa_kernel(backend):
        close(A.run(encoder, observation)[0], expected)


def test_att_39_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="got d_model=10, n_heads=3"):
        EntityEncoder(TWO_KINDS, d_model=10, n_heads=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_att_40_a_mean_of_many_does_not_overflow(dtype: torch.dtype) -> None:
    x, mask = torch.full((1, 700, 3), 100.0, dtype=dtype), torch.ones(1, 700)
    assert (A.pool(x, mask, "mean") - 100).abs().max() <= 0.5
    schema = EntitySchema((EntityGroup("a", 700, ("x",), "m"),))
    for attention in ("groups", "dense"):
        encoder = EntityEncoder(
            schema, d_model=8, n_heads=2, n_layers=0, norm="post", attention=attention
        ).to(dtype)
        with torch.no_grad():
            encoder.embeddings[0].linear.weight.fill_(100.0)  # type: ignore[union-attr, operator]
        pooled = encoder({"a": np.ones((1, 700, 1)), "m": np.ones((1, 700))}).pooled
        assert (pooled - 100).abs().max() <= 0.5
