import pytest
import torch

from entity_encoder.envs.tasks.pick_matching_balls import PickMatchingBalls
from tests.envs.tasks.play import agrees, best_returns, first_returns, place, random, reference


def lay_out(env: PickMatchingBalls, colours: list[list[int]]) -> None:
    """Place balls by colour; -1 leaves a slot empty."""
    colour = torch.tensor(colours)
    place(env, colour=colour.clamp(min=0), present=colour >= 0)


def test_selected_balls_stay_visible_and_cannot_be_picked_again() -> None:
    env = PickMatchingBalls(1, max_balls=5, min_balls=3)
    lay_out(env, [[2, -1, 5, 2, 2]])
    observation, reward, terminated, _, _ = env.step([3])
    assert observation["ball_mask"].tolist() == [[1, 0, 1, 1, 1]]
    assert observation["action_mask"].tolist() == [[1, 0, 1, 0, 1]]
    assert observation["ball"][0, :, 6].tolist() == [0, 0, 0, 1, 0]
    assert observation["ball"][0, :, :6].argmax(1).tolist() == [2, 0, 5, 2, 2]
    assert observation["ball"][0, 1].tolist() == [0.0] * 7
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])
    for slot in (3, 1):
        with pytest.raises(ValueError, match=f"action must be legal, got {slot} in env 0"):
            env.step([slot])


@pytest.mark.parametrize(
    ("picks", "expected"),
    [
        ((0, 1), 1 / 3),  # one of colour 4, then colour 1: the largest class has 3
        ((0, 2, 4, 1), 1.0),
        ((1, 3, 0), 2 / 3),
        ((5, 0), 1 / 3),
    ],
)
def test_a_second_colour_ends_the_episode_and_pays_the_share(
    picks: tuple[int, ...], expected: float
) -> None:
    env = PickMatchingBalls(1, max_balls=7, min_balls=3)
    lay_out(env, [[4, 1, 4, 1, 4, 0, -1]])
    for slot in picks[:-1]:
        _, reward, terminated, _, _ = env.step([slot])
        assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])
    _, reward, terminated, _, _ = env.step([picks[-1]])
    assert reward[0] == pytest.approx(expected)
    assert terminated.all()


def test_picking_every_ball_of_a_single_colour_pays_one() -> None:
    env = PickMatchingBalls(1, max_balls=3)
    lay_out(env, [[3, 3, 3]])
    results = [env.step([slot])[1:3] for slot in range(3)]
    assert [(float(r[0]), bool(t[0])) for r, t in results] == [(0, False), (0, False), (1, True)]


def test_optimum_is_the_best_of_all_sequences_of_picks() -> None:
    env = PickMatchingBalls(7, max_balls=5, min_balls=3)
    env.reset(seed=1)
    torch.testing.assert_close(best_returns(env, 5), env.optimum(env.state))


@pytest.mark.parametrize("options", [{}, {"max_balls": 8}, {"max_balls": 64, "min_balls": 16}])
def test_random_and_reference_return_what_is_stated(options: dict[str, int]) -> None:
    env = PickMatchingBalls(2000, **options)
    assert agrees(first_returns(env, random), env.random_return, slack=0.003)
    assert first_returns(env, reference).eq(1.0).all()


def test_the_reference_goes_on_with_the_colour_that_was_begun() -> None:
    env = PickMatchingBalls(1, max_balls=5)
    lay_out(env, [[0, 0, 0, 1, 1]])
    env.step([3])
    assert env.reference_policy(env.state).tolist() == [4]


def test_the_number_of_balls_is_uniform_in_its_range() -> None:
    env = PickMatchingBalls(3000, max_balls=6, min_balls=4)
    observation, _ = env.reset(seed=0)
    counts = torch.bincount(torch.tensor(observation["ball_mask"]).sum(1), minlength=7)[4:]
    assert counts.sum() == 3000
    assert ((counts - 1000).abs() <= 4 * (3000 * 2 / 9) ** 0.5).all()
