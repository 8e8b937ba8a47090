import pytest
import torch

from entity_encoder.envs.tasks.count import Count
from tests.envs.tasks.play import agrees, first_returns, place, random, reference


def test_the_number_of_beans_is_the_answer() -> None:
    env = Count(3, max_beans=4)
    present = [[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    place(env, count=[3, 0, 4], present=present, open=torch.ones(3, 5))
    observation = env.observation()
    assert observation["bean_mask"].tolist() == present
    assert observation["bean"].shape == (3, 4, 0)
    assert observation["player_mask"].tolist() == [[1], [1], [1]]
    _, reward, terminated, _, _ = env.step([3, 1, 4])
    assert reward.tolist() == [1.0, 0.0, 1.0]
    assert terminated.all()


@pytest.mark.parametrize("choices", [2, 5, 10])
def test_as_many_answers_are_open_as_asked_for_and_the_right_one_is(choices: int) -> None:
    env = Count(4000, choices=choices)
    observation, _ = env.reset(seed=0)
    legal, count = torch.tensor(observation["action_mask"]), env.state["count"]
    assert (legal.sum(1) == choices).all()
    assert legal.gather(1, count[:, None]).all()
    # Every wrong answer stays open with probability (choices - 1) / 9, whatever the right one is.
    wrong = torch.nn.functional.one_hot(count, 10) == 0
    share = (legal * wrong).sum(0) / wrong.sum(0)
    p = (choices - 1) / 9
    assert ((share - p).abs() <= 4 * (p * (1 - p) / 3400) ** 0.5).all()


def test_numbers_are_drawn_uniformly_and_agree_with_the_mask() -> None:
    env = Count(5000, max_beans=9)
    observation, _ = env.reset(seed=1)
    assert env.state["count"].tolist() == observation["bean_mask"].sum(1).tolist()
    counts = torch.bincount(env.state["count"], minlength=10)
    assert ((counts - 500).abs() <= 4 * (5000 * 0.1 * 0.9) ** 0.5).all()


def test_a_masked_answer_is_refused() -> None:
    env = Count(1, max_beans=3, choices=2)
    place(env, count=[2], present=[[1, 1, 0]], open=[[0, 1, 1, 0]])
    with pytest.raises(ValueError, match=r"action must be legal, got 3 in env 0.*\[1, 2\]"):
        env.step([3])


@pytest.mark.parametrize(("choices", "expected"), [(2, 0.5), (4, 0.25), (None, 0.1)])
def test_random_and_reference_return_what_is_stated(choices: int | None, expected: float) -> None:
    env = Count(4000, choices=choices)
    assert env.random_return == expected
    assert agrees(first_returns(env, random), expected)
    assert first_returns(env, reference).eq(env.optimum(env.state)).all()


def test_more_beans_can_be_counted_at_test_time() -> None:
    env = Count(50, max_beans=40)
    assert first_returns(env, reference).eq(1.0).all()
    assert int(env.state["count"].max()) > 30
