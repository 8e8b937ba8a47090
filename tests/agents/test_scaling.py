import numpy as np
import pytest
import torch

from entity_encoder.agents.scaling import RewardScale


def test_factor_is_one_over_the_deviation_of_discounted_returns() -> None:
    # Two environments, gamma .5. Env 0: rewards 1, 2 | 3 (its episode ends after 2): returns
    # 1, 2.5, 3. Env 1: 4, a row that only resets, 5: returns 4, (none), 7.
    reward = torch.tensor([[1.0, 4.0], [2.0, 99.0], [3.0, 5.0]])
    ended = torch.tensor([[False, False], [True, False], [False, False]])
    valid = torch.tensor([[True, True], [True, False], [True, True]])
    scale = RewardScale(2, 0.5)
    assert float(scale.factor) == 1.0
    scale.update(reward[:2], ended[:2], valid[:2])
    scale.update(reward[2:], ended[2:], valid[2:])
    returns = np.array([1, 2.5, 3, 4, 0.5 * 4 + 5])
    assert float(scale.factor) == pytest.approx(1 / returns.std(), rel=1e-6)


def test_rewards_that_never_vary_are_left_alone() -> None:
    scale = RewardScale(3, 0.9)
    no = torch.zeros(4, 3, dtype=torch.bool)
    scale.update(torch.zeros(4, 3), no, ~no)
    assert float(scale.factor) == 1.0


def test_a_reward_hardly_ever_seen_is_not_blown_up() -> None:
    scale = RewardScale(1, 0.0, limit=100.0)
    reward = torch.zeros(1000, 1)
    reward[7] = 1e-3
    no = torch.zeros_like(reward, dtype=torch.bool)
    scale.update(reward, no, ~no)
    assert float(scale.factor) == 100.0
