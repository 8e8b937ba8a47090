import pytest
import torch

from entity_encoder.envs.tasks.cherry_pick import CherryPick
from tests.envs.tasks.play import agrees, best_returns, first_returns, place, random, reference


def test_a_picked_cherry_pays_its_quality_and_is_gone() -> None:
    env = CherryPick(2, max_cherries=5)  # 2 picks
    place(env, quality=[[0.5, -1.0, 2.0, 0.25, 0.0], [3.0, 1.0, 0.5, -2.0, -4.0]])
    observation, reward, terminated, truncated, _ = env.step([2, 4])
    assert reward.tolist() == [2.0, -4.0]
    assert observation["cherry_mask"].tolist() == [[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]]
    assert observation["cherry"][0, :, 0].tolist() == [0.5, -1.0, 0.0, 0.25, 0.0]
    assert not terminated.any()
    with pytest.raises(ValueError, match="action must point at a present cherry, got 2 in env 0"):
        env.step([2, 0])
    _, reward, terminated, truncated, _ = env.step([1, 0])
    assert reward.tolist() == [-1.0, 3.0]
    assert terminated.tolist() == [True, True]
    assert not truncated.any()


@pytest.mark.parametrize("max_cherries", [2, 7, 32, 129])
def test_best_half_sums_to_one_and_the_reference_takes_it(max_cherries: int) -> None:
    env = CherryPick(13, max_cherries=max_cherries)
    returns = first_returns(env, reference)
    torch.testing.assert_close(returns, torch.ones(13).double(), atol=1e-4, rtol=0.0)


def test_optimum_is_the_best_of_all_sequences_of_picks() -> None:
    env = CherryPick(9, max_cherries=6)
    env.reset(seed=3)
    torch.testing.assert_close(best_returns(env, 3), env.optimum(env.state))


@pytest.mark.parametrize("max_cherries", [3, 32, 64])
def test_random_picks_return_what_the_score_calls_zero(max_cherries: int) -> None:
    env = CherryPick(2000, max_cherries=max_cherries)
    returns = first_returns(env, random)
    assert agrees(returns, env.random_return, slack=0.02)
    if max_cherries > 8:
        assert env.random_return == pytest.approx(1.0 - 0.39 * max_cherries, rel=0.02)
