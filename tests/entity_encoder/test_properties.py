"""The invariants, on generated schemas, observations and encoders.

1. Padding is unobservable. 2. Set semantics. 3. Always finite. 4. One function on every route.
Profile `ci` tries 30 scenes a claim; `nightly` thousands, each of up to 5 sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from entity_encoder import EntityEncoder
from entity_encoder.encoding import EntityEncoding
from tests.entity_encoder import reference
from tests.entity_encoder.strategies import (
    CPU_STRATEGIES,
    MASK_DTYPES,
    PADDINGS,
    SELF,
    STRATEGIES,
    Scene,
    assert_close,
    assert_same_gradients,
    compacted,
    gradients,
    masks_of,
    poisoned,
    rearranged,
    relead,
    resized,
    scenes,
    stacked_permutations,
    taken,
)

# A scene is a batch of sets that passes through several encoders: a quarter of the profile's
# number makes more than 10,000 sets of 2,500 examples.
assert settings.default is not None
budget = settings(max_examples=max(30, settings.default.max_examples // 4))
light = settings(max_examples=max(15, settings.default.max_examples // 4))

seeds = st.integers(0, 2**20)
strategies = st.sampled_from(STRATEGIES)
halves = st.sampled_from([torch.bfloat16, torch.float16])


def _usable(scene: Scene, attention: str, dtype: torch.dtype = torch.float32) -> EntityEncoder:
    """Build the encoder; the varlen kernel exists on CUDA in half precision only."""
    if attention == "varlen":
        assume(dtype != torch.float32)
        return scene.encoder(attention=attention).to("cuda", dtype)
    return scene.encoder(attention=attention).to(dtype)


def _weigh(encoding: EntityEncoding) -> Tensor:
    """Weigh every number differently, so that no two gradients can be mistaken."""
    total = torch.zeros((), dtype=torch.float64)
    for x in (encoding.pooled, encoding.entities):
        steps = torch.arange(x.numel(), dtype=torch.float64).reshape(x.shape)
        total = total + (x.cpu().double() * torch.cos(1.0 + steps)).sum()
    return total


def _same_bits(got: EntityEncoding, expected: EntityEncoding) -> None:
    assert torch.equal(got.mask, expected.mask)
    assert torch.equal(got.pooled, expected.pooled)
    assert torch.equal(got.entities, expected.entities)


@budget
@given(scenes(max_slots=7), strategies)
def test_values_are_those_of_the_definition(scene: Scene, attention: str) -> None:
    encoder = _usable(scene, attention, torch.float64)
    encoder.update_statistics(scene.observation)
    encoding = encoder(scene.observation)
    for i in range(scene.batch):
        one = taken(scene.observation, i)
        pooled, entities = reference.encode(encoder, scene.schema, one, scene.options)
        np.testing.assert_allclose(encoding.pooled[i].detach(), pooled, rtol=1e-9, atol=1e-9)
        for name, rows in entities.items():
            got, mask = encoding.group(name)
            assert mask[i].tolist() == [row is not None for row in rows]
            wanted = [np.zeros(encoder.d_model) if row is None else row for row in rows]
            for vector, row in zip(got[i].detach(), wanted, strict=True):
                np.testing.assert_allclose(vector, row, rtol=1e-9, atol=1e-9)


@budget
@given(scenes())
def test_strategies_agree_on_the_same_weights(scene: Scene) -> None:
    first, *others = (scene.encoder(attention=name) for name in CPU_STRATEGIES)
    expected, slopes = first(scene.observation), gradients(first, scene.observation, _weigh)
    for other in others:
        other.load_state_dict(first.state_dict())
        encoding = other(scene.observation)
        assert_close(encoding.pooled, expected.pooled, 1e-5, other.attention)
        assert_close(encoding.entities, expected.entities, 1e-5, other.attention)
        assert_same_gradients(gradients(other, scene.observation, _weigh), slopes, 1e-4)


@pytest.mark.parametrize("attention", STRATEGIES)
@budget
@given(
    scene=scenes(),
    value=st.sampled_from(PADDINGS),
    precision=st.sampled_from(["fp32", "bf16", "auto"]),
)
def test_padding_changes_no_bit_of_output_or_gradient(
    attention: str, scene: Scene, value: float, precision: str
) -> None:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    encoder = _usable(scene, attention, dtype)
    other = poisoned(scene.schema, scene.observation, value)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "auto"):
        _same_bits(encoder(other), encoder(scene.observation))
        expected = gradients(encoder, scene.observation, _weigh)
        found = gradients(encoder, other, _weigh)
    for name, slope in expected.items():
        assert torch.isfinite(slope).all(), name
        assert torch.equal(found[name], slope), name


@light
@given(scenes(), strategies)
def test_padding_gets_no_gradient_and_entities_get_finite_ones(
    scene: Scene, attention: str
) -> None:
    encoder = _usable(scene, attention)
    masks = masks_of(scene.schema, scene.observation)
    observation = poisoned(scene.schema, scene.observation, np.nan)
    tables = {name: torch.from_numpy(observation[name]).requires_grad_() for name in masks}
    _weigh(encoder({**observation, **tables})).backward()
    for name, table in tables.items():
        slope = torch.zeros_like(table) if table.grad is None else table.grad
        assert torch.isfinite(slope).all()
        assert (slope[torch.from_numpy(~masks[name])] == 0).all()


@budget
@given(scenes(), strategies, seeds)
def test_permuting_permutes_entities_and_leaves_the_rest(
    scene: Scene, attention: str, seed: int
) -> None:
    order = stacked_permutations(np.random.default_rng(seed), scene.schema, scene.observation)
    other = rearranged(scene.schema, scene.observation, order)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        encoder = _usable(scene, attention, dtype)
        before, after = encoder(scene.observation), encoder(other)
        assert_close(after.pooled, before.pooled, tolerance, "pooled")
        for name, index in order.items():
            entities, mask = before.group(name)
            place = torch.from_numpy(index)
            assert torch.equal(after.group(name)[1], mask.gather(1, place))
            moved = entities.gather(1, place[..., None].expand(-1, -1, encoder.d_model))
            assert_close(after.group(name)[0], moved, tolerance, name)


@light
@given(scenes(), strategies, seeds)
def test_gradients_do_not_depend_on_the_order(scene: Scene, attention: str, seed: int) -> None:
    order = stacked_permutations(np.random.default_rng(seed), scene.schema, scene.observation)
    other = rearranged(scene.schema, scene.observation, order)
    encoder = _usable(scene, attention, torch.float64)

    def weigh(encoding: EntityEncoding) -> Tensor:
        scale = torch.linspace(-1, 2, encoder.output_dim, dtype=torch.float64)
        entities = encoding.entities.sum(1) * torch.linspace(0.5, 1, encoder.d_model)
        return (encoding.pooled * scale).sum() + entities.sum()

    expected = gradients(encoder, scene.observation, weigh)
    assert_same_gradients(gradients(encoder, other, weigh), expected, 1e-10)


def _check_alone(scene: Scene, encoder: EntityEncoder, junk: float, *, bits: bool) -> None:
    """Compare a batch with its members alone, wider, and without holes."""
    together = encoder(scene.observation)

    def same(got: Tensor, expected: Tensor) -> None:
        if bits:
            assert torch.equal(got, expected)
        else:
            assert_close(got, expected, 1e-5)

    slots = {group.name: group.slots + 2 + i for i, group in enumerate(scene.schema.groups)}
    wide = encoder(resized(scene.schema, scene.observation, slots, junk))
    same(wide.pooled, together.pooled)
    for group in scene.schema.groups:
        entities, mask = wide.group(group.name)
        same(entities[:, : group.slots], together.group(group.name)[0])
        assert not mask[:, group.slots :].any()
        assert (entities[:, group.slots :] == 0).all()
    same(encoder(compacted(scene.schema, scene.observation)).pooled, together.pooled)
    for i in range(scene.batch):
        alone = encoder(taken(scene.observation, i))  # no leading dimension at all
        same(alone.pooled, together.pooled[i])
        same(alone.entities, together.entities[i])
        small = compacted(scene.schema, taken(scene.observation, slice(i, i + 1)))
        same(encoder(small).pooled[0], together.pooled[i])


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
@budget
@given(scene=scenes(), junk=st.sampled_from(PADDINGS))
def test_neighbours_holes_and_capacity_change_nothing(
    attention: str, scene: Scene, junk: float
) -> None:
    _check_alone(scene, _usable(scene, attention), junk, bits=False)


@budget
@given(scenes(), st.booleans())
def test_groups_is_bitwise_independent_of_batch_and_capacity(scene: Scene, learn: bool) -> None:
    with torch.set_grad_enabled(learn):
        _check_alone(scene, scene.encoder(attention="groups"), 3.0, bits=True)


@settings(max_examples=10)
@given(scenes(max_slots=23))
def test_groups_is_bitwise_independent_of_threads(scene: Scene) -> None:
    encoder = scene.encoder(attention="groups")
    one = encoder(scene.observation)
    torch.set_num_threads(2)
    try:
        _same_bits(encoder(scene.observation), one)
        _check_alone(scene, encoder, 3.0, bits=True)
    finally:
        torch.set_num_threads(1)


@light
@given(scenes(), strategies, st.integers(1, 40))
def test_chunks_change_no_bit(scene: Scene, attention: str, rows: int) -> None:
    whole = _usable(scene, attention)(scene.observation)
    cut = scene.encoder(attention=attention, chunk_rows=rows)(scene.observation)
    if attention == "groups":
        _same_bits(cut, whole)
    else:
        assert_close(cut.pooled, whole.pooled, 1e-5)
        assert_close(cut.entities, whole.entities, 1e-5)


@light
@given(scenes(min_batch=1), strategies)
def test_any_leading_dimensions_give_the_same_bits(scene: Scene, attention: str) -> None:
    encoder = _usable(scene, attention)
    flat = encoder(scene.observation)
    for lead in ((scene.batch, 1), (1, scene.batch), (1, 1, scene.batch)):
        encoding = encoder(relead(scene.observation, lead))
        assert encoding.pooled.shape == (*lead, encoder.output_dim)
        assert encoding.entities.shape == (*lead, scene.schema.slots, encoder.d_model)
        assert encoding.mask.shape == (*lead, scene.schema.slots)
        assert torch.equal(encoding.pooled.reshape(flat.pooled.shape), flat.pooled)
        assert torch.equal(encoding.entities.reshape(flat.entities.shape), flat.entities)


@light
@given(scenes(), strategies)
def test_every_mask_dtype_gives_the_same_bits(scene: Scene, attention: str) -> None:
    encoder = _usable(scene, attention)
    expected = encoder(scene.observation)
    keys = [group.mask_key for group in scene.schema.groups if group.mask_key is not None]
    for dtype in MASK_DTYPES:
        other = {k: v.astype(dtype) if k in keys else v for k, v in scene.observation.items()}
        _same_bits(encoder(other), expected)


@budget
@given(scenes(), strategies, seeds)
def test_rollout_and_update_compute_the_same_function(
    scene: Scene, attention: str, seed: int
) -> None:
    encoder = _usable(scene, attention)
    encoder.update_statistics(scene.observation)
    encoder.eval()
    with torch.no_grad():
        rollout = encoder(scene.observation)
    encoder.train()
    assert_close(encoder(scene.observation).pooled, rollout.pooled, 1e-5)
    # A minibatch is any part of the rollout, in any order.
    part = np.random.default_rng(seed).permutation(scene.batch)[: scene.batch // 2 + 1]
    update = encoder(taken(scene.observation, part))
    if attention == "groups":
        assert torch.equal(update.pooled, rollout.pooled[part])
        assert torch.equal(update.entities, rollout.entities[part])
    else:
        assert_close(update.pooled, rollout.pooled[part], 1e-5)


@light
@given(scenes(), strategies)
def test_attention_maps_change_no_bit_and_rows_sum_to_one(scene: Scene, attention: str) -> None:
    assume(scene.options["core"] == "attention" and scene.options["n_layers"])
    encoder = _usable(scene, attention)
    encoding = encoder(scene.observation, return_attention=True)
    _same_bits(encoding, encoder(scene.observation))
    maps, present = encoding.attention, encoding.mask  # (B, layers, H, N, N)
    assert maps is not None
    if scene.options["pooling"] == "class":
        present = torch.nn.functional.pad(present, (0, 1), value=True)
    layers, heads = scene.options["n_layers"], scene.options["n_heads"]
    assert maps.shape == (scene.batch, layers, heads, present.shape[1], present.shape[1])
    pairs = (present[:, :, None] & present[:, None, :])[:, None, None].expand_as(maps)
    assert (maps[~pairs] == 0).all()
    rows = present[:, None, None].expand(maps.shape[:-1])
    torch.testing.assert_close(maps.sum(-1), rows.float(), atol=1e-5, rtol=0)


@light
@given(scenes(), strategies, halves, st.booleans())
def test_half_precision_is_finite_and_close(
    scene: Scene, attention: str, dtype: torch.dtype, autocast: bool
) -> None:
    expected = scene.encoder(attention="groups")(scene.observation)
    encoder = _usable(scene, attention, torch.float32 if autocast else dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        encoding = encoder(scene.observation)
        slopes = gradients(encoder, scene.observation, _weigh)
    # bfloat16 keeps 8 bits: 2 layers of them.
    tolerance = 0.1 if dtype == torch.bfloat16 else 0.02
    assert_close(encoding.pooled, expected.pooled, tolerance, "pooled")
    assert_close(encoding.entities, expected.entities, tolerance, "entities")
    for name, slope in slopes.items():
        assert torch.isfinite(slope).all(), name


@light
@given(scenes(), strategies, st.sampled_from(PADDINGS))
def test_an_empty_set_is_one_learnable_constant(scene: Scene, attention: str, junk: float) -> None:
    encoder = _usable(scene, attention)
    observation = dict(scene.observation)
    for group in scene.schema.groups:
        if group.mask_key is not None:
            observation[group.mask_key] = np.zeros_like(observation[group.mask_key])
        else:
            table = np.array(observation[group.name])
            table[..., group.features.index(group.presence or "")] = 0
            observation[group.name] = table
    for item in scene.schema.globals:
        observation[item.name] = np.zeros_like(observation[item.name])
    encoding = encoder(poisoned(scene.schema, observation, junk))
    assert (encoding.entities == 0).all()
    assert torch.isfinite(encoding.pooled).all()
    for row in encoding.pooled:
        assert_close(row, encoding.pooled[0], 0.0)
    if scene.batch:
        parameter = encoder.empty if encoder.class_token is None else encoder.class_token
        (slope,) = torch.autograd.grad(encoding.pooled[:, : encoder.d_model].sum(), parameter)
        assert (slope != 0).any() or encoder.class_token is not None


@light
@given(scenes(), strategies, seeds)
def test_moving_the_whole_scene_changes_nothing_in_an_ego_frame(
    scene: Scene, attention: str, seed: int
) -> None:
    frame = scene.schema.frame
    assume(frame is not None)
    assert frame is not None
    masks = masks_of(scene.schema, scene.observation)
    present = masks[SELF].any(1)
    if present.any():
        assume(np.abs(scene.observation[SELF][..., 2:4]).max() > 0.1)
    rng = np.random.default_rng(seed)
    shift = rng.normal(size=(scene.batch, 1, 2))
    angle = rng.uniform(-np.pi, np.pi, (scene.batch, 1)) * bool(frame.heading)
    turn = np.exp(1j * angle)
    other = {key: np.array(value) for key, value in scene.observation.items()}
    for group in scene.schema.groups:
        table = other[group.name].astype(np.float64)
        for names, moves in ((group.positions, True), (group.directions, False)):
            if names:
                a, b = group.columns(names)
                z = (table[..., a] + 1j * table[..., b]) * turn
                table[..., a] = z.real + shift[..., 0] * moves
                table[..., b] = z.imag + shift[..., 1] * moves
        for c in group.columns(group.angles):
            table[..., c] += angle
        other[group.name] = table
    encoder = _usable(scene, attention)
    before, after = encoder(scene.observation), encoder(other)
    assert_close(after.pooled[present], before.pooled[present], 1e-4, "pooled")
    assert_close(after.entities[present], before.entities[present], 1e-4, "entities")


@light
@given(scenes(), seeds)
def test_weights_fit_every_capacity(scene: Scene, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = {group.name: group.slots + int(rng.integers(1, 9)) for group in scene.schema.groups}
    small, large = (
        scene.encoder(),
        Scene(
            scene.schema.with_slots(slots), scene.observation, scene.options, scene.seed + 1
        ).encoder(),
    )
    shapes = {name: tuple(value.shape) for name, value in small.state_dict().items()}
    assert shapes == {name: tuple(value.shape) for name, value in large.state_dict().items()}
    large.load_state_dict(small.state_dict())
    wide = resized(scene.schema, scene.observation, slots, np.nan)
    assert_close(large(wide).pooled, small(scene.observation).pooled, 1e-5)


@light
@given(scenes(min_batch=2), strategies)
def test_a_loss_over_some_sets_ignores_the_others(scene: Scene, attention: str) -> None:
    encoder = _usable(scene, attention, torch.float64)
    part = slice(0, scene.batch - 1)

    def first(encoding: EntityEncoding) -> Tensor:
        return _weigh_part(encoding, part)

    expected = gradients(encoder, taken(scene.observation, part), first)
    assert_same_gradients(gradients(encoder, scene.observation, first), expected, 1e-10)


def _weigh_part(encoding: EntityEncoding, part: slice) -> Tensor:
    pooled, entities = encoding.pooled[part], encoding.entities[part]
    return pooled.square().sum() + entities.sin().sum()


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
@light
@given(data=st.data())
def test_whatever_the_space_samples_is_finite(attention: str, data: Any) -> None:
    scene = data.draw(scenes())
    assume(all(group.slots for group in scene.schema.groups))  # gymnasium has no MultiBinary(0)
    space = scene.schema.space(*data.draw(st.sampled_from([(-np.inf, np.inf), (-3e38, 3e38)])))
    space.seed(data.draw(seeds))
    observation = space.sample()
    for group in scene.schema.groups:
        for name, count in group.categories:
            column = observation[group.name][..., group.features.index(name)]
            column[:] = np.abs(np.nan_to_num(column)) % count // 1
    encoder = scene.encoder(attention=attention)
    for _ in range(2):
        encoding = encoder(observation)
        assert torch.isfinite(encoding.pooled).all()
        assert torch.isfinite(encoding.entities).all()
        encoder.update_statistics(observation)
