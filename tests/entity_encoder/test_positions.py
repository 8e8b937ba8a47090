"""Claims about frames, rotary angles and the relative-position bias."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from entity_encoder import EgoFrame, EntityEncoder, EntityGroup, EntitySchema
from entity_encoder.observation import read_observation
from entity_encoder.positions import RelativeBias, Rotary, apply_frame, position_rows
from tests.entity_encoder.strategies import CPU_STRATEGIES, assert_close, make_encoder

XY = ("x", "y")


def _schema(heading: tuple[str, ...], *columns: str) -> EntitySchema:
    """Build a schema of one ego and five others that also have a velocity and an angle."""
    ego = EntityGroup("ego", 1, (*XY, *columns), "ego_mask", positions=XY)
    other = EntityGroup(
        "other", 5, ("vx", "vy", "x", "a", "y"), "other_mask", None, XY, ("vx", "vy"), ("a",)
    )
    return EntitySchema((ego, other), (), EgoFrame("ego", heading=heading))


def _express(schema: EntitySchema, ego: list[float], other: list[float], present: int = 1) -> Any:
    """Express one other entity in the frame."""
    observation = {
        "ego": np.array([[ego]]),
        "ego_mask": np.array([[present]]),
        "other": np.array([[other]] * 5).reshape(1, 5, 5),
        "other_mask": np.ones((1, 5)),
    }
    entities = read_observation(schema, observation, dtype=torch.float64)
    return [x[0, 0].tolist() for x in apply_frame(schema, entities, entities.features)]


def test_subtracting_moves_the_ego_to_the_origin() -> None:
    schema = _schema(())
    ego, other = _express(schema, [3, 4], [7, 8, 5, 9, 1])
    assert ego == [0, 0]
    assert other == [7, 8, 5 - 3, 9, 1 - 4]


QUARTER = [
    (_schema(("turn",), "turn"), [3, 4, math.pi / 2]),
    (_schema(("c", "s"), "c", "s"), [3, 4, 0, 7]),  # a direction of any length
]


@pytest.mark.parametrize(("schema", "ego"), QUARTER, ids=["angle", "vector"])
def test_a_quarter_turn_by_hand(schema: EntitySchema, ego: list[float]) -> None:
    # The ego looks along +y. What lies ahead gets (distance, 0), what lies to the right (0, -d).
    _, ahead = _express(schema, ego, [0, 2, 3, math.pi, 4 + 5])
    assert ahead == pytest.approx([2, 0, 5, math.pi / 2, 0])
    _, right = _express(schema, ego, [1, 0, 3 + 5, -math.pi, 4])
    # -pi - pi/2 is pi/2 after a full turn.
    assert right == pytest.approx([0, -1, 0, math.pi / 2, -5])


@pytest.mark.parametrize(("schema", "ego"), QUARTER, ids=["angle", "vector"])
def test_without_an_ego_coordinates_stay_as_they_are(
    schema: EntitySchema, ego: list[float]
) -> None:
    features = [[0.0] * len(ego)], [[1.0, 2.0, 3.0, 0.5, 4.0]]
    observation = {
        "ego": np.array([features[0]]),
        "ego_mask": np.zeros((1, 1)),
        "other": np.array(features[1] * 5)[None],
        "other_mask": np.ones((1, 5)),
    }
    entities = read_observation(schema, observation, dtype=torch.float64)
    _, other = apply_frame(schema, entities, entities.features)
    assert other[0, 0].tolist() == [1.0, 2.0, 3.0, 0.5, 4.0]


def test_a_heading_without_length_does_not_turn() -> None:
    _, other = _express(_schema(("c", "s"), "c", "s"), [3, 4, 0, 0], [1, 2, 3, 0.5, 4])
    assert other == [1, 2, 0, 0.5, 0]


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_angles_stay_within_half_a_turn(angle: float, heading: float) -> None:
    _, other = _express(_schema(("t",), "t"), [0, 0, heading], [0, 0, 0, angle, 0])
    assert abs(other[3]) <= math.pi + 1e-9
    expected = complex(math.cos(angle - heading), math.sin(angle - heading))
    assert abs(complex(math.cos(other[3]), math.sin(other[3])) - expected) < 1e-9


def test_more_than_one_present_ego_is_named() -> None:
    group = EntityGroup("crew", 3, XY, "mask", positions=XY)
    observation = {"crew": np.zeros((5, 3, 2)), "mask": np.zeros((5, 3))}
    observation["mask"][4, :2] = 1
    message = "ego group 'crew' must have at most one present entity, got 2 in environment 4"
    with pytest.raises(ValueError, match=message):
        EntityEncoder(EntitySchema((group,), (), EgoFrame("crew")))(observation)
    with pytest.raises(ValueError, match=message):
        EntityEncoder(EntitySchema((group,)), pooling="ego", ego="crew")(observation)
    observation["mask"][4, 0] = 0
    EntityEncoder(EntitySchema((group,)), pooling="ego", ego="crew")(observation)


def test_positions_of_all_groups_lie_side_by_side() -> None:
    placed = EntityGroup("a", 2, ("hp", *XY), "am", positions=XY)
    schema = EntitySchema((placed, EntityGroup("b", 3, ("hp",), "bm")))
    a, b = torch.arange(6.0).view(1, 2, 3), torch.ones(1, 3, 1)
    rows = position_rows(schema, [a, b], 2.0)
    assert rows.tolist() == [[[0.5, 1, 1], [2, 2.5, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]]


# --- rotary ---------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(0, 2**20))
def test_scores_know_differences_of_coordinates_and_distances(dims: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rotary = Rotary(dims, 20).double()
    q, k = torch.randn(2, 20, generator=generator, dtype=torch.float64)
    a, b = torch.randn(2, dims, generator=generator, dtype=torch.float64)
    places = torch.cat([torch.stack([a, b]), torch.ones(2, 1, dtype=torch.float64)], dim=1)
    qkv = torch.cat([q, k, k]).expand(2, -1)
    turned = rotary(qkv, rotary.angles(places), 1).unflatten(-1, (3, 20))
    # Column pairs are complex numbers; pair i turns by frequency f times coordinate c, so the
    # score is sum_i Re(q_i conj(k_i) exp(i f (c(a) - c(b)))).
    offset = torch.cat([a - b, (a.norm() - b.norm())[None]])
    angles = torch.zeros(10, dtype=torch.float64)
    made = (offset[:, None] * rotary.frequencies).flatten()
    angles[: len(made)] = made
    pairs = torch.complex(q[:10], q[10:]) * torch.complex(k[:10], k[10:]).conj()
    expected = (pairs * torch.polar(torch.ones_like(angles), angles)).real.sum()
    assert float(turned[0, 0] @ turned[1, 1]) == pytest.approx(float(expected), abs=1e-9)


def test_rotation_keeps_lengths_and_unplaced_entities() -> None:
    torch.manual_seed(0)
    rotary = Rotary(2, 7)  # an odd width: the last column never turns
    qkv = torch.randn(4, 3 * 2 * 7)
    places = torch.randn(4, 3)
    places[:, 2] = torch.tensor([1.0, 1.0, 0.0, 1.0])
    out = rotary(qkv, rotary.angles(places), 2).unflatten(-1, (3, 2, 7))
    given_ = qkv.unflatten(-1, (3, 2, 7))
    torch.testing.assert_close(out.norm(dim=-1), given_.norm(dim=-1))
    assert torch.equal(out[2], given_[2])
    assert torch.equal(out[..., 6], given_[..., 6])
    assert not torch.allclose(out[0, 0], given_[0, 0])


def test_what_is_read_tells_the_offset_and_nothing_else() -> None:
    # One entity reads another with weight 1: value times exp(i f (c(there) - c(here))).
    torch.manual_seed(0)
    rotary = Rotary(1, 8).double()
    value = torch.randn(8, dtype=torch.float64)
    here, there, known = 3.0, 5.0, 1.0
    places = torch.tensor([[here, known], [there, known]], dtype=torch.float64)
    cos, sin = rotary.angles(places)
    turned = rotary(value.repeat(3), (cos[1], sin[1]), 1)[16:]
    read = rotary.undo(turned, (cos[0], sin[0]), 1)
    # Coordinate and distance differ by the same 2 here.
    angles = (there - here) * rotary.frequencies.repeat(2)
    pairs = torch.complex(value[:4], value[4:]) * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(read, torch.cat([pairs.real, pairs.imag]))


def test_frequencies_run_from_low_to_high() -> None:
    rotary = Rotary(1, 12, low=0.5, high=8.0)  # 12 // (2 * 2) = 3 per coordinate
    assert rotary.frequencies.tolist() == pytest.approx([0.5, 2.0, 8.0])
    cos, sin = rotary.angles(torch.tensor([[-3.0, 1.0]]))
    angles = [-1.5, -6.0, -24.0, 1.5, 6.0, 24.0]  # coordinate, then distance
    assert cos[0].tolist() == pytest.approx([math.cos(a) for a in angles], abs=1e-5)
    assert sin[0].tolist() == pytest.approx([math.sin(a) for a in angles], abs=1e-5)


def test_heads_too_narrow_to_turn_are_refused() -> None:
    with pytest.raises(ValueError, match="in 2 coordinates and distance need head_dim >= 6, got 5"):
        Rotary(2, 5)


# --- bias -----------------------------------------------------------------------------------------


def test_the_bias_sees_offset_and_distance_and_skips_the_unplaced() -> None:
    torch.manual_seed(0)
    bias = RelativeBias(2, n_heads=3, n_layers=2, hidden=5)
    places = torch.tensor([[[1.0, 2.0, 1], [4.0, 6.0, 1], [9.0, 9.0, 0], [2.0, 3.0, 1]]])
    made = bias._bias(places)  # (1, layers * heads, 4, 4)
    assert made.shape == (1, 6, 4, 4)
    expected = bias.outer(torch.relu(bias.inner(torch.tensor([3.0, 4.0, 5.0]))))
    torch.testing.assert_close(made[0, :, 0, 1], expected)
    assert (made[0, :, 2] == 0).all()
    assert (made[0, :, :, 2] == 0).all()
    shifted = places + torch.tensor([5.0, -7.0, 0.0])
    torch.testing.assert_close(bias._bias(shifted), made)


# --- in the encoder -------------------------------------------------------------------------------

UNIT = EntityGroup("unit", 6, (*XY, "hp"), "mask", positions=XY)


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
def test_a_bias_makes_attention_depend_on_offsets_alone(attention: str) -> None:
    """Without frame and position columns among the features, only offsets can matter."""
    schema = EntitySchema((UNIT,))
    encoder = make_encoder(schema, position_encoding="bias", attention=attention)
    with torch.no_grad():
        encoder.embeddings[0].linear.weight[:, :2] = 0  # type: ignore[union-attr, operator]
    rng = np.random.default_rng(0)
    unit, mask = rng.normal(size=(3, 6, 3)), rng.random((3, 6)) < 0.6
    moved, stretched = unit.copy(), unit.copy()
    moved[..., :2] += [4.0, -3.0]
    stretched[..., :2] *= 3
    expected = encoder({"unit": unit, "mask": mask}).pooled
    assert_close(encoder({"unit": moved, "mask": mask}).pooled, expected, 1e-5)
    assert not torch.allclose(encoder({"unit": stretched, "mask": mask}).pooled, expected)


@pytest.mark.parametrize("encoding", ["rotary", "bias"])
def test_the_scale_is_the_length_that_counts_as_one(encoding: str) -> None:
    schema = EntitySchema((UNIT,))
    rng = np.random.default_rng(0)
    unit, mask = rng.normal(size=(3, 6, 3)), rng.random((3, 6)) < 0.6
    large = unit * [100.0, 100.0, 1.0]
    outs = []
    for table, scale in ((unit, 1.0), (large, 100.0)):
        encoder = make_encoder(schema, position_encoding=encoding, position_scale=scale)
        encoder.update_statistics({"unit": table, "mask": mask})
        outs.append(encoder({"unit": table, "mask": mask}).pooled)
    assert_close(outs[0], outs[1], 1e-4)


def test_what_does_not_fit_is_refused() -> None:
    schema = EntitySchema((UNIT,))
    with pytest.raises(ValueError, match=r"position_encoding must be one of .* got 'rotray'; did"):
        EntityEncoder(schema, position_encoding="rotray")
    with pytest.raises(ValueError, match=r"position_scale must be positive, got 0\.0"):
        EntityEncoder(schema, position_encoding="bias", position_scale=0.0)
    with pytest.raises(ValueError, match=r"'bias' must go with core='attention', got core='pool'"):
        EntityEncoder(schema, position_encoding="bias", core="pool")
    plain = EntitySchema((EntityGroup("unit", 6, ("hp",), "mask"),))
    with pytest.raises(ValueError, match="'rotary' needs position columns, got none; declare them"):
        EntityEncoder(plain, position_encoding="rotary")


def test_a_grid_brings_relative_positions_and_its_step_as_the_scale() -> None:
    gridded = EntitySchema((UNIT,), grid=2.0)
    encoder = EntityEncoder(gridded, d_model=12, n_heads=2)
    assert encoder.rotary is not None
    assert encoder.position_scale == 2.0
    cases: tuple[tuple[EntitySchema, dict[str, Any]], ...] = (
        (EntitySchema((UNIT,)), {}),  # nobody said that there is a grid
        (gridded, {"position_encoding": "none"}),
        (gridded, {"core": "pool"}),  # where nobody attends
        (gridded, {"n_heads": 6}),  # heads of two columns hold no two coordinates and a distance
    )
    for schema, options in cases:
        encoder = EntityEncoder(schema, **{"d_model": 12, "n_heads": 2, **options})
        assert encoder.rotary is None
        assert encoder.relative_bias is None


def test_a_grid_can_be_named_for_any_space() -> None:
    space = spaces.Dict(unit=spaces.Box(0, 9, (6, 2)), unit_mask=spaces.MultiBinary(6))
    schema = EntitySchema.from_space(space, positions={"unit": ("f0", "f1")}, grid=1)
    assert schema.grid == 1.0
    assert EntityEncoder(schema, d_model=12, n_heads=2).rotary is not None


def test_a_grid_must_have_a_step_and_places() -> None:
    with pytest.raises(ValueError, match=r"grid must be a positive length or None, got 0\.0"):
        EntitySchema((UNIT,), grid=0.0)
    with pytest.raises(ValueError, match="grid needs position columns, got none"):
        EntitySchema((EntityGroup("unit", 6, ("hp",), "mask"),), grid=1.0)
