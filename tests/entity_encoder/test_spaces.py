"""Claims about the entity action spaces and their JSON form."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from entity_encoder.spaces import PerEntity, SelectEntity, space_from_dict, space_to_dict

TARGETED = PerEntity("ally", 3, 5, target="enemy", target_slots=7)
ENTITY_SPACES = [SelectEntity("cherry", 11), PerEntity("head", 3, 4), TARGETED]

PLAIN_SPACES: list[spaces.Space[Any]] = [
    spaces.Box(-1.5, np.inf, (3, 5), np.float32),
    spaces.Box(np.array([-np.inf, 0.1]), np.array([1e-30, 0.3]), dtype=np.float64),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.Box(0.0, 1.0, (0, 4), np.float32),
    spaces.Discrete(5, start=-2),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete(np.array([[2, 3], [5, 7]]), start=np.array([[0, 1], [2, 3]])),
    spaces.MultiDiscrete([2, 3], dtype=np.int32),
    spaces.MultiBinary(7),
    spaces.MultiBinary([3, 5]),
    spaces.Text(5, min_length=2, charset="zyx"),
    spaces.Dict({"b": spaces.Discrete(2), "a": TARGETED}, sort_keys=False),
    spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": SelectEntity("cherry", 3)})]),
    spaces.OneOf([spaces.Discrete(2), spaces.MultiBinary(3)]),
    spaces.Sequence(spaces.Box(0, 1, (3,)), stack=True),
    spaces.Graph(spaces.Box(0, 1, (3,)), spaces.Discrete(4)),
    spaces.Graph(spaces.Box(0, 1, (3,)), None),
]


def test_entity_spaces_are_ordinary_spaces() -> None:
    """Every library that knows Discrete and MultiDiscrete knows these."""
    select, per = SelectEntity("cherry", 11), TARGETED
    assert isinstance(select, spaces.Discrete)
    assert select.n == 11
    assert select.start == 0
    assert isinstance(per, spaces.MultiDiscrete)
    assert per.nvec.tolist() == [12, 12, 12]
    assert per.choices == 12
    assert gymnasium.spaces.flatdim(select) == 11
    assert gymnasium.spaces.flatdim(per) == 36


@pytest.mark.parametrize("space", ENTITY_SPACES, ids=repr)
def test_samples_belong_and_seeding_repeats_them(space: spaces.Space[Any]) -> None:
    """A seed determines the samples."""
    space.seed(7)
    first = [space.sample() for _ in range(20)]
    space.seed(7)
    assert all(np.array_equal(a, space.sample()) for a in first)
    assert all(space.contains(a) for a in first)


def test_seed_can_be_given_at_construction() -> None:
    """The constructor's seed is the seed."""
    a, b = PerEntity("head", 3, 4, seed=5), PerEntity("head", 3, 4, seed=5)
    assert np.array_equal(a.sample(), b.sample())
    assert (
        SelectEntity("cherry", 11, seed=5).sample() == SelectEntity("cherry", 11, seed=5).sample()
    )


@pytest.mark.parametrize("space", ENTITY_SPACES, ids=repr)
def test_copies_and_pickles_are_equal(space: spaces.Space[Any]) -> None:
    """Nothing of the meaning is lost on the way to a worker process."""
    for twin in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert twin == space
        assert type(twin) is type(space)
        assert repr(twin) == repr(space)


def test_repr_rebuilds_the_space() -> None:
    """The shown text is the constructor call."""
    for space in ENTITY_SPACES:
        assert eval(repr(space)) == space


def test_spaces_differ_by_kind_group_and_size() -> None:
    """Equality looks at what the choice means, not only at how many there are."""
    assert SelectEntity("a", 3) != SelectEntity("b", 3)
    assert SelectEntity("a", 3) != SelectEntity("a", 5)
    assert SelectEntity("a", 3) != spaces.Discrete(3)
    assert spaces.Discrete(3) != SelectEntity("a", 3)
    assert PerEntity("a", 3, 5) != spaces.MultiDiscrete([5, 5, 5])
    assert PerEntity("a", 3, 5) != PerEntity("a", 3, 2, target="b", target_slots=3)
    assert PerEntity("a", 3, 2, target="c", target_slots=3) != PerEntity(
        "a", 3, 2, target="b", target_slots=3
    )


def test_batching_follows_gymnasium() -> None:
    """A batched SelectEntity is a MultiDiscrete, a batched PerEntity an integer Box."""
    select = batch_space(SelectEntity("cherry", 11), 3)
    assert select == spaces.MultiDiscrete([11, 11, 11])
    per = batch_space(TARGETED, 5)
    assert isinstance(per, spaces.Box)
    assert per.shape == (5, 3)
    assert per.high.max() == 11
    assert len(list(iterate(select, select.sample()))) == 3
    empty = create_empty_array(TARGETED, n=5)
    assert isinstance(empty, np.ndarray)
    assert empty.shape == (5, 3)
    nested = batch_space(spaces.Dict({"act": TARGETED, "pick": SelectEntity("cherry", 11)}), 2)
    assert isinstance(nested, spaces.Dict)
    assert nested["pick"] == spaces.MultiDiscrete([11, 11])


@pytest.mark.parametrize("space", [*ENTITY_SPACES, *PLAIN_SPACES], ids=repr)
def test_json_round_trip_is_exact(space: spaces.Space[Any]) -> None:
    """What comes back through strict JSON is equal, of the same kind and dtype."""
    text = json.dumps(space_to_dict(space), allow_nan=False)
    twin = space_from_dict(json.loads(text))
    assert twin == space
    assert type(twin) is type(space)
    assert twin.dtype == space.dtype
    assert repr(twin) == repr(space)


def test_wide_uniform_boxes_stay_short() -> None:
    """A box with one bound everywhere is described by one number."""
    assert len(json.dumps(space_to_dict(spaces.Box(0, 255, (84, 84, 3), np.uint8)))) < 100


def test_bad_arguments_are_named() -> None:
    """Sizes and targets are checked at construction."""
    with pytest.raises(ValueError, match="slots must be at least 1, got 0"):
        SelectEntity("cherry", 0)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        PerEntity("head", 3, 0)
    with pytest.raises(ValueError, match="n must not be negative, got -1"):
        PerEntity("ally", 3, -1, target="enemy", target_slots=5)
    with pytest.raises(ValueError, match="target_slots must be at least 1, got 0"):
        PerEntity("ally", 3, 2, target="enemy")
    with pytest.raises(ValueError, match="target_slots must be 0 without a target group, got 5"):
        PerEntity("ally", 3, 2, target_slots=5)


def test_unknown_spaces_are_named() -> None:
    """Neither direction guesses."""

    class Odd(spaces.Discrete):
        pass

    with pytest.raises(ValueError, match=r"space must be one of .*got Odd"):
        space_to_dict(Odd(3))
    with pytest.raises(ValueError, match="got 'PerEntty'; did you mean 'PerEntity'"):
        space_from_dict({"space": "PerEntty"})
