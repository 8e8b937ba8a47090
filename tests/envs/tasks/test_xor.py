from itertools import product

import numpy as np
import torch

from entity_encoder.envs.tasks.xor import Xor
from tests.envs.tasks.play import agrees, first_returns, place, random, reference

CASES = list(product((0, 1), repeat=3))  # first input, second input, negate


def test_truth_table() -> None:
    env = Xor(8)
    right = [a != b if not negate else a == b for a, b, negate in CASES]
    for answer in (0, 1):
        place(env, value=[case[:2] for case in CASES], negate=[case[2] for case in CASES])
        observation = env.observation()
        assert observation["input"][:, :, 0].tolist() == [list(case[:2]) for case in CASES]
        assert observation["negate"][:, 0].tolist() == [case[2] for case in CASES]
        _, reward, terminated, _, _ = env.step(np.full(8, answer))
        assert reward.tolist() == [float(truth == answer) for truth in right]
        assert terminated.all()


def test_more_inputs_ask_for_the_parity() -> None:
    env = Xor(3, max_inputs=5)
    place(env, value=[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]], negate=[0, 0, 1])
    assert env.reference_policy(env.state).tolist() == [1, 0, 0]


def test_coins_are_fair_and_independent() -> None:
    env = Xor(4000)
    env.reset(seed=2)
    coins = torch.cat((env.state["value"], env.state["negate"][:, None]), 1)
    which = torch.bincount(coins @ torch.tensor([4, 2, 1]), minlength=8)
    assert ((which - 500).abs() <= 4 * (4000 * 1 / 8 * 7 / 8) ** 0.5).all()


def test_random_and_reference_return_what_is_stated() -> None:
    env = Xor(4000)
    assert agrees(first_returns(env, random), env.random_return)
    assert first_returns(env, reference).eq(env.optimum(env.state)).all()
    assert (env.random_return, env.reference_return) == (0.5, 1.0)
