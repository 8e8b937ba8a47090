"""Claims about the encoder: every option on every strategy, and what users may rely on."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import (
    EgoFrame,
    EntityEncoder,
    EntityEncoding,
    EntityGroup,
    EntitySchema,
    GlobalFeature,
)
from tests.entity_encoder import reference
from tests.entity_encoder.strategies import (
    BEACON,
    CPU_STRATEGIES,
    ORE,
    SELF,
    UNIT,
    every_option,
    fill,
    make_encoder,
    poisoned,
    taken,
)

ME = EntityGroup(SELF, 1, ("x", "y", "c", "s"), "self_mask", None, ("x", "y"), ("c", "s"))
UNITS = EntityGroup(
    UNIT,
    5,
    ("hp", "x", "y", "heading", "job"),
    "unit_mask",
    positions=("x", "y"),
    angles=("heading",),
    categories=(("job", 3),),
)
ORES = EntityGroup(ORE, 3, ("amount", "there"), presence="there")
BEACONS = EntityGroup(BEACON, 2, (), "beacon_mask")
SCHEMA = EntitySchema(
    (UNITS, ME, ORES, BEACONS),
    (GlobalFeature("clock", 1), GlobalFeature("wind", 2)),
    EgoFrame(SELF, heading=("c", "s")),
)


def _batch() -> dict[str, Any]:
    """Seven observations; the third is empty, the fifth has no ego."""
    observation = fill(SCHEMA, 7, seed=3, density=0.6)
    for key in ("unit_mask", "self_mask", "beacon_mask"):
        observation[key][2] = False
    observation[ORE][2, :, 1] = 0
    observation["self_mask"][4] = False
    return poisoned(SCHEMA, observation, 7.5)


GRID = list(itertools.product(every_option(), CPU_STRATEGIES))


@pytest.mark.parametrize(("options", "attention"), GRID, ids=lambda x: str(x)[:60])
def test_every_option_on_every_strategy_is_the_definition(
    options: dict[str, Any], attention: str
) -> None:
    observation = _batch()
    encoder = make_encoder(SCHEMA, ego=SELF, attention=attention, **options).double()
    encoder.update_statistics(observation)
    learn = encoder(poisoned(SCHEMA, observation, np.nan))
    with torch.no_grad():
        act = encoder.eval()(observation)
    torch.testing.assert_close(act.pooled, learn.pooled, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(act.entities, learn.entities, rtol=1e-12, atol=1e-12)
    for i in (2, 4, 6):
        pooled, _ = reference.encode(
            encoder, SCHEMA, taken(observation, i), {"ego": SELF, **options}
        )
        np.testing.assert_allclose(act.pooled[i], pooled, rtol=1e-9, atol=1e-9)
    learn.pooled.sin().sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in encoder.parameters())


@pytest.mark.parametrize("options", list(every_option()), ids=str)
def test_every_weight_learns(options: dict[str, Any]) -> None:
    encoder = make_encoder(SCHEMA, ego=SELF, **options)
    encoding = encoder(_batch())
    (encoding.pooled.sin().sum() + encoding.entities.cos().sum()).backward()
    idle = {name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()}
    expected = set()
    if options.get("pooling") == "class":
        expected = {"empty"}  # with its token, no set is empty
    assert idle == expected


def test_the_result_has_the_documented_shapes() -> None:
    encoder = make_encoder(SCHEMA)
    encoding = encoder(_batch())
    assert isinstance(encoding, EntityEncoding)
    assert encoder.output_dim == 12 + 12  # with global features
    assert encoding.pooled.shape == (7, encoder.output_dim)
    assert encoding.entities.shape == (7, 11, encoder.d_model)
    assert encoding.mask.shape == (7, 11)
    assert encoding.attention is None
    entities, mask = encoding.group(ORE)
    assert torch.equal(entities, encoding.entities[:, 6:9])
    assert torch.equal(mask, encoding.mask[:, 6:9])
    assert (encoding.entities[~encoding.mask] == 0).all()
    with pytest.raises(ValueError, match=r"group must be one of .* got 'unt'; did you mean 'unit'"):
        encoding.group("unt")


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({}, 12),
        ({"count_feature": True}, 24),
        ({"pooling": "attention", "n_queries": 3}, 36),
        ({"pooling": "ego", "ego": UNIT}, 24),
    ],
)
def test_the_output_width_follows_from_the_options(options: dict[str, Any], width: int) -> None:
    encoder = make_encoder(EntitySchema((UNITS,)), **options)
    assert encoder.output_dim == width
    one = {UNIT: np.zeros((5, 5)), "unit_mask": np.array([0, 1, 0, 0, 0])}
    assert encoder(one).pooled.shape == (width,)


def test_gymnasium_spaces_and_their_samples_are_understood() -> None:
    space = spaces.Dict(
        ship=spaces.Box(-np.inf, np.inf, (5, 3)),
        ship_mask=spaces.MultiBinary(5),
        wind=spaces.Box(-1, 1, (2,)),
        action_mask=spaces.MultiBinary(4),
    )
    encoder = EntityEncoder(space, d_model=16, n_heads=2)
    assert encoder.schema == EntitySchema.from_space(space)
    assert encoder(space.sample()).pooled.shape == (32,)


def test_keys_that_nobody_asked_for_are_ignored() -> None:
    encoder, observation = make_encoder(SCHEMA), _batch()
    more = {**observation, "action_mask": np.full((7, 2), np.nan), "note": "text"}
    assert torch.equal(encoder(more).pooled, encoder(observation).pooled)


def test_observations_are_not_written_to() -> None:
    observation = _batch()
    before = copy.deepcopy(observation)
    encoder = make_encoder(SCHEMA)
    encoder.update_statistics(observation)
    with torch.no_grad():
        encoder(observation)
    for key, value in before.items():
        np.testing.assert_array_equal(observation[key], value)


def test_a_count_feature_tells_one_entity_from_two_equal_ones() -> None:
    schema = EntitySchema((EntityGroup("a", 9, ("v",), "m"),))
    table, mask = np.ones((3, 9, 1)), np.zeros((3, 9))
    mask[0, :1] = mask[1, :2] = mask[2, :9] = 1
    plain = make_encoder(schema)({"a": table, "m": mask}).pooled
    torch.testing.assert_close(plain[0], plain[1])
    counting = make_encoder(schema, count_feature=True)
    outs = counting({"a": table, "m": mask}).pooled
    assert not torch.allclose(outs[0], outs[1])
    assert not torch.allclose(outs[1], outs[2])


def test_a_zero_entity_is_an_entity() -> None:
    schema = EntitySchema((EntityGroup("a", 3, ("v", "w"), "m"),))
    encoder = make_encoder(schema)
    table = np.zeros((2, 3, 2))
    table[:, 0] = 1
    mask = np.array([[1, 0, 0], [1, 1, 0]])
    first, second = encoder({"a": table, "m": mask}).pooled
    assert not torch.allclose(first, second)


# --- kinds of entities ------------------------------------------------------------------------


def test_the_order_of_groups_does_not_matter_with_their_weights() -> None:
    observation = _batch()
    encoder = make_encoder(SCHEMA)
    order = (3, 1, 0, 2)
    other = make_encoder(
        EntitySchema(tuple(SCHEMA.groups[i] for i in order), SCHEMA.globals, SCHEMA.frame)
    )
    state = encoder.state_dict()
    for new, old in enumerate(order):
        for part in ("embeddings", "group_norms"):
            for name in [n for n in encoder.state_dict() if n.startswith(f"{part}.{old}.")]:
                state[name.replace(f".{old}.", f".{new}.", 1)] = encoder.state_dict()[name]
    wanted = other.state_dict().keys()
    other.load_state_dict({name: value for name, value in state.items() if name in wanted})
    torch.testing.assert_close(other(observation).pooled, encoder(observation).pooled)


def test_a_kind_that_is_absent_gets_no_gradient() -> None:
    encoder, observation = make_encoder(SCHEMA), _batch()
    for _ in range(2):  # a second time: no gradient is left over
        encoder.zero_grad()
        encoder({**observation, "unit_mask": np.zeros((7, 5))}).pooled.sum().backward()
        for name, parameter in encoder.embeddings[0].named_parameters():
            assert parameter.grad is None or not parameter.grad.any(), name
        assert encoder.embeddings[1].kind.grad.any()  # type: ignore[union-attr, operator]
        encoder(observation).pooled.sum().backward()


def _critic_schema() -> EntitySchema:
    seen = EntityGroup("seen", 3, ("v",), "seen_mask")
    secret = EntityGroup("secret", 5, ("v",), "secret_mask", critic_only=True)
    return EntitySchema((seen, secret), (GlobalFeature("truth", 2, critic_only=True),))


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
@pytest.mark.parametrize("count_feature", [False, True])
def test_only_the_critic_sees_what_is_for_it_alone(attention: str, count_feature: bool) -> None:
    schema = _critic_schema()
    encoder = make_encoder(schema, attention=attention, count_feature=count_feature)
    first = fill(schema, 5, seed=0, density=0.6)
    second = fill(schema, 5, seed=1, density=0.6)
    other = {**second, "seen": first["seen"], "seen_mask": first["seen_mask"]}
    assert torch.equal(encoder(other).pooled, encoder(first).pooled)
    assert not encoder(first).group("secret")[1].any()
    for key in ("secret", "secret_mask", "truth"):
        one = {**first, key: other[key]}
        assert not torch.equal(encoder(one, critic=True).pooled, encoder(first, critic=True).pooled)
    # What is hidden is neither in values nor in gradients.
    encoder(first).pooled.sum().backward()
    hidden = encoder.embeddings[1].kind.grad
    assert hidden is None or not hidden.any()  # type: ignore[operator]


# --- statistics -------------------------------------------------------------------------------


def test_statistics_come_from_present_entities_in_the_ego_frame() -> None:
    schema = EntitySchema((ME, UNITS), (), EgoFrame(SELF))
    observation = fill(schema, 50, seed=0, density=0.6)
    observation["self_mask"][:] = True
    observation[SELF][:] = np.random.default_rng(0).normal(size=(50, 1, 4))
    encoder = make_encoder(schema)
    encoder.update_statistics(observation)
    real = (observation[UNIT][..., 1:3] - observation[SELF][..., :2])[observation["unit_mask"]]
    mean = encoder.group_norms[1].mean[1:3]  # type: ignore[index]
    np.testing.assert_allclose(mean, real.mean(0), rtol=1e-5)


def test_only_valid_observations_count() -> None:
    observation = _batch()
    valid = torch.tensor([True, False, True, True, False, True, False])
    encoder, expected = make_encoder(SCHEMA), make_encoder(SCHEMA)
    encoder.update_statistics(observation, valid=valid)
    expected.update_statistics(taken(observation, valid.numpy()))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(encoder.state_dict()[name], value)
    with pytest.raises(ValueError, match=r"valid must have shape \(7,\), got \(6,\)"):
        encoder.update_statistics(observation, valid=valid[1:])


def test_category_ids_are_looked_up_whatever_the_statistics() -> None:
    encoder, observation = (
        make_encoder(EntitySchema((UNITS,))),
        fill(SCHEMA, 7, seed=0, density=1.0),
    )
    table = encoder.embeddings[0].tables[0]  # type: ignore[index]
    for _ in range(2):
        seen: list[torch.Tensor] = []
        handle = table.register_forward_hook(lambda m, i, o, seen=seen: seen.append(i[0]))  # type: ignore[union-attr]
        encoder(observation)
        handle.remove()
        assert sorted(seen[0].tolist())[:35] == sorted(observation[UNIT][..., 4].flatten().tolist())
        encoder.update_statistics(observation)


def test_without_normalisation_there_are_no_statistics() -> None:
    encoder = make_encoder(SCHEMA, normalise=False)
    before = copy.deepcopy(encoder.state_dict())
    assert not any("norms" in name for name in before)
    encoder.update_statistics(_batch())
    encoder(_batch())


def test_statistics_travel_with_the_weights() -> None:
    encoder, observation = make_encoder(SCHEMA, seed=1), _batch()
    encoder.update_statistics(observation)
    other = make_encoder(SCHEMA, seed=2)
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(observation).pooled, encoder(observation).pooled)
    for twin in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert torch.equal(twin(observation).pooled, encoder(observation).pooled)


# --- what users ask ---------------------------------------------------------------------------


def test_explain_names_the_path_the_reason_and_the_fill() -> None:
    schema = EntitySchema((EntityGroup("a", 4, ("v",), "m"),))
    observation = {"a": np.zeros((3, 4, 1)), "m": np.array([[1, 0, 0, 0], [0] * 4, [1, 1, 0, 0]])}
    text = make_encoder(schema).explain(observation)
    assert text.startswith("attention 'groups': on a CPU")
    assert "3 sets, 3 entities in 12 slots (25 % filled), 1 chunk(s) of at most 4096 rows" in text
    text = make_encoder(schema, attention="dense", chunk_rows=7).explain(observation)
    assert text.startswith("attention 'dense': attention='dense' was asked for")
    assert "2 chunk(s) of at most 1 rows" in make_encoder(schema, chunk_rows=1).explain(observation)


@pytest.mark.parametrize("options", [{"n_layers": 0}, {"core": "pool"}])
def test_maps_need_attention(options: dict[str, Any]) -> None:
    encoder = make_encoder(SCHEMA, **options)
    with pytest.raises(ValueError, match="return_attention needs core='attention' with at least"):
        encoder(_batch(), return_attention=True)


def test_values_are_checked_on_request_only_elsewhere() -> None:
    observation = _batch()
    observation["unit_mask"][0, 0] = True
    observation[UNIT][0, 0, 0] = np.nan
    with pytest.raises(
        ValueError, match="present entities must be finite, got nan in environment 0"
    ):
        make_encoder(SCHEMA)(observation)
    observation[UNIT][0, 0, 4] = 1
    assert make_encoder(SCHEMA, check=False)(observation).pooled.isnan().any()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"d_model": 10, "n_heads": 3}, "divisible by n_heads, got d_model=10, n_heads=3"),
    ({"pooling": "men"}, "pooling must be one of .* got 'men'; did you mean 'mean'"),
    ({"pooling": "attention", "n_queries": 0}, "n_queries must be at least 1, got 0"),
    ({"core": "latnt"}, "core must be one of .* got 'latnt'; did you mean 'latent'"),
    ({"attention": "pad"}, "attention must be one of .* got 'pad'"),
    ({"ego": "unt"}, "group must be one of .* got 'unt'; did you mean 'unit'"),
    ({"chunk_rows": 0}, "chunk_rows must be at least 1, got 0"),
    ({"n_layers": -1}, "n_layers must be at least 0, got -1"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda x: str(x)[:40])
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EntityEncoder(SCHEMA, **{"d_model": 12, "n_heads": 2, **options})


@pytest.mark.parametrize("options", [{"pooling": "ego"}, {"core": "ego"}])
def test_an_ego_is_named_or_taken_from_the_frame(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"ego must name the group .* one of \['unit', 'self', .* None"
    ):
        make_encoder(EntitySchema(SCHEMA.groups), **options)
    assert make_encoder(SCHEMA, **options).ego == 1
