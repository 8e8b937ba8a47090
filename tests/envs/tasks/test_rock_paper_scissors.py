import numpy as np
import pytest
import torch

from entity_encoder.envs.tasks.rock_paper_scissors import RockPaperScissors
from tests.envs.tasks.play import agrees, first_returns, place, random, reference

ROCK, PAPER, SCISSORS = range(3)
BEATEN_BY = {ROCK: PAPER, PAPER: SCISSORS, SCISSORS: ROCK}


@pytest.mark.parametrize("choice", [ROCK, PAPER, SCISSORS])
def test_payoffs(choice: int) -> None:
    env = RockPaperScissors(3)
    place(env, opponent=[ROCK, PAPER, SCISSORS])
    assert env.observation()["opponent"][:, 0].tolist() == np.eye(3).tolist()
    _, reward, terminated, _, _ = env.step([choice] * 3)
    expected = [
        2.0 if BEATEN_BY[other] == choice else 1.0 if other == choice else 0.0
        for other in (ROCK, PAPER, SCISSORS)
    ]
    assert reward.tolist() == expected
    assert terminated.all()


@pytest.mark.parametrize("cheat", [False, True])
def test_the_opponent_is_for_the_critic_only_unless_cheating(cheat: bool) -> None:
    schema = RockPaperScissors(1, cheat=cheat).entity_schema
    assert schema.group("opponent").critic_only is not cheat
    assert not schema.group("player").critic_only


def test_fair_play_returns_one_whatever_it_does_and_cheating_two() -> None:
    env = RockPaperScissors(4000)
    assert agrees(first_returns(env, random), env.random_return)
    for choice in range(3):
        always = torch.full((4000,), choice)
        assert agrees(first_returns(env, lambda _, a=always: a, seed=choice), 1.0)  # type: ignore[misc]
    assert first_returns(env, reference).eq(2.0).all()
    assert env.optimum(env.state).eq(2.0).all()
    assert (env.random_return, env.reference_return) == (1.0, 2.0)
