from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder.envs.bridges.sequence import SequenceToEntities
from tests.envs.bridges.spaced import Spaced, check_wrapped

POINT = spaces.Box(1, 9, (2,), np.float32)


def points(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value, value + 1], np.float32) for value in values)


def test_a_sequence_becomes_a_group_with_a_mask() -> None:
    env = SequenceToEntities(
        Spaced(spaces.Sequence(POINT), [points(3, 5), points()]),
        3,
        features={"entity": ("x", "y")},
        positions={"entity": ("x", "y")},
    )
    observation, _ = env.reset()
    assert observation["entity"].tolist() == [[3, 4], [5, 6], [0, 0]]
    assert observation["entity_mask"].tolist() == [1, 1, 0]
    assert observation in env.observation_space
    assert env.entity_schema.group("entity").positions == ("x", "y")
    observation, reward, terminated, truncated, _ = env.step(0)
    assert observation["entity_mask"].tolist() == [0, 0, 0]
    assert (reward, terminated, truncated) == (1.0, False, True)
    assert env.action_space == spaces.Discrete(3)


def test_an_element_of_zeros_is_there() -> None:
    space = spaces.Sequence(spaces.Box(-1, 1, (2,)))
    observation, _ = SequenceToEntities(Spaced(space, [(np.zeros(2, np.float32),)]), 2).reset()
    assert observation["entity_mask"].tolist() == [1, 0]


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize(
    ("space", "elements", "rows"),
    [
        (spaces.Discrete(3), [2, 0], [[0, 0, 1], [1, 0, 0]]),
        (spaces.Box(0, 9, (), np.float32), [4.0, 7.0], [[4], [7]]),
        (
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 9, (1,), np.float32)}),
            [{"a": 1, "b": np.array([5], np.float32)}, {"a": 0, "b": np.array([6], np.float32)}],
            [[0, 1, 5], [1, 0, 6]],
        ),
    ],
)
def test_elements_of_any_fixed_size_are_flattened(
    space: Any, elements: Any, rows: Any, stack: bool
) -> None:
    value: Any = tuple(elements)
    if stack and isinstance(space, spaces.Dict):
        value = {key: np.stack([element[key] for element in elements]) for key in ("a", "b")}
    elif stack:
        value = np.array(elements)
    env = SequenceToEntities(Spaced(spaces.Sequence(space, stack=stack), [value]), 3)
    observation, _ = env.reset()
    assert observation["entity"].tolist() == [*rows, [0] * len(rows[0])]
    assert observation in env.observation_space


def test_sequences_inside_a_dict_keep_their_keys_and_the_rest_stays() -> None:
    space = spaces.Dict(
        {
            "ally": spaces.Sequence(POINT),
            "foe": spaces.Sequence(spaces.Discrete(4)),
            "clock": spaces.Box(0, 1, (3,)),
        }
    )
    clock = np.ones(3, np.float32)
    inner = Spaced(space, [{"ally": points(1), "foe": (3, 3), "clock": clock}])
    env = SequenceToEntities(inner, {"ally": 2, "foe": 5})
    observation, _ = env.reset()
    assert observation["ally_mask"].tolist() == [1, 0]
    assert observation["foe_mask"].tolist() == [1, 1, 0, 0, 0]
    assert observation["clock"].tolist() == [1, 1, 1]
    assert [item.name for item in env.entity_schema.globals] == ["clock"]
    space.seed(3)
    check_wrapped(SequenceToEntities(Spaced(space, [space.sample() for _ in range(99)]), 30))


def test_what_does_not_fit_is_counted_and_said_once() -> None:
    space = spaces.Sequence(POINT)
    env = SequenceToEntities(
        Spaced(space, [points(1, 4, 2, 3)] * 3), 3, priority=lambda rows: -rows[:, 0]
    )
    with pytest.warns(UserWarning, match=r"4 entities of 'entity' do not fit into 3 slots"):
        observation, _ = env.reset()
    assert observation["entity"][:, 0].tolist() == [1, 2, 3]  # in the order delivered
    env.step(0)
    assert env.truncated_entities == 2


def make() -> gymnasium.Env[Any, Any]:
    return SequenceToEntities(Spaced(spaces.Sequence(POINT), [points(3), points(4, 5)]), 3)


def test_wrapped_before_vectorising_it_goes_through_shared_memory() -> None:
    raw = partial(Spaced, spaces.Sequence(POINT), [points(3)])
    with pytest.raises(TypeError, match=r"shared.memory"):
        gymnasium.vector.AsyncVectorEnv([raw], shared_memory=True)
    envs: Any = gymnasium.vector.AsyncVectorEnv([make, make], shared_memory=True)
    try:
        envs.reset()
        observation = envs.step(np.array([0, 1]))[0]
        assert observation["entity"].shape == (2, 3, 2)
        assert observation["entity_mask"].tolist() == [[1, 1, 0]] * 2
    finally:
        envs.close()


def test_what_cannot_be_wrapped_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a Sequence or a Dict, got Box"):
        SequenceToEntities(Spaced(POINT, []), 3)
    with pytest.raises(ValueError, match="must hold a Sequence, got Dict"):
        SequenceToEntities(Spaced(spaces.Dict({"a": POINT}), []), 3)
    with pytest.raises(ValueError, match=r"must name the sequences \['entity'\], got \['a'\]"):
        SequenceToEntities(Spaced(spaces.Sequence(POINT), []), {"a": 3})
    nested = spaces.Sequence(spaces.Sequence(POINT))
    with pytest.raises(ValueError, match="elements must have a fixed size, got Sequence"):
        SequenceToEntities(Spaced(nested, []), 3)
