from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder.envs.bridges.flat import FlatToEntities
from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.schema import EgoFrame
from tests.envs.bridges.spaced import Spaced, check_wrapped

LAYOUT = Layout(
    [
        Block("own", 0, features=("x", "y"), positions=("x", "y")),
        Block("other", 2, 3, features=("x", "hp"), presence="hp > 0"),
        Block("clock", 8, width=1, is_global=True),
    ]
)
BOX = spaces.Box(np.full(9, 1.0), np.full(9, 50.0), dtype=np.float64)
FLAT = np.array([3, 4, 5, 6, 7, 0.0, 9, 2, 11])


def test_observations_are_cut_and_lie_in_the_space() -> None:
    env = FlatToEntities(Spaced(BOX, [FLAT, FLAT + 1]), LAYOUT)
    observation, _ = env.reset(seed=0)
    assert observation["other"].tolist() == [[5, 6], [0, 0], [9, 2]]
    assert observation in env.observation_space
    assert env.action_space == spaces.Discrete(3)
    observation, reward, terminated, truncated, _ = env.step(0)
    assert observation["clock"].tolist() == [12]
    assert (reward, terminated, truncated) == (1.0, False, True)
    check_wrapped(FlatToEntities(Spaced(BOX, [FLAT] * 99), LAYOUT))


def test_bounds_hold_absent_rows() -> None:
    space: Any = FlatToEntities(Spaced(BOX, [FLAT]), LAYOUT).observation_space
    assert space["other"].low.min() == 0
    assert space["clock"].low.tolist() == [1]
    huge = spaces.Box(-1e300, 1e300, (9,), np.float64)
    space = FlatToEntities(Spaced(huge, [FLAT]), LAYOUT).observation_space
    assert space["own"].low.min() == -np.inf


@pytest.mark.parametrize(
    ("actions", "legal"),
    [
        (spaces.Discrete(3), [0, 1, 1]),
        (spaces.MultiDiscrete([3, 3]), [[1, 0, 1], [0, 1, 0]]),
    ],
)
def test_the_action_mask_comes_from_info_or_from_a_function(actions: Any, legal: Any) -> None:
    inner = Spaced(BOX, [FLAT], {"legal": legal}, actions)
    for source in ("legal", lambda env: env.unwrapped.info["legal"]):
        env = FlatToEntities(inner, LAYOUT, action_mask=source, frame=EgoFrame("own"))
        observation, _ = env.reset()
        assert observation["action_mask"].tolist() == legal
        assert observation in env.observation_space
        assert env.entity_schema.action_masks == ("action_mask",)
        assert env.entity_schema.frame == EgoFrame("own")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a Box of shape \(width,\), got Discrete"):
        FlatToEntities(Spaced(spaces.Discrete(2), [0]), LAYOUT)
    with pytest.raises(ValueError, match="must have 9 columns, got 4"):
        FlatToEntities(Spaced(spaces.Box(0, 1, (4,)), [FLAT]), LAYOUT)
    env = Spaced(BOX, [FLAT], {"mask": 1}, spaces.Box(0, 1))
    with pytest.raises(ValueError, match=r"action_mask needs a Discrete .* got Box"):
        FlatToEntities(env, LAYOUT, action_mask="mask")
    with pytest.raises(ValueError, match=r"info must hold 'legal', the action mask, got keys \[\]"):
        FlatToEntities(Spaced(BOX, [FLAT]), LAYOUT, action_mask="legal").reset()
