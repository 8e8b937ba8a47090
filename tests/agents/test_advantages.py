import math

import pytest
import torch

from entity_encoder.agents.advantages import gae, moments, normalise_advantages


def test_gae_equals_the_sum_of_discounted_errors() -> None:
    # A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of the episode, for 3 environments
    g = torch.Generator().manual_seed(0)
    shape = (7, 3)
    r, v, n = (torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(3))
    terminated = torch.rand(shape, generator=g) < 0.2
    truncated = (torch.rand(shape, generator=g) < 0.2) & ~terminated
    got = gae(r, v, n, terminated, truncated, gamma=0.97, gae_lambda=0.9)
    for e in range(3):
        for t in range(7):
            total, weight = 0.0, 1.0
            for k in range(t, 7):
                future = 0.0 if terminated[k, e] else 0.97 * float(n[k, e])
                total += weight * (float(r[k, e]) + future - float(v[k, e]))
                if terminated[k, e] or truncated[k, e]:
                    break
                weight *= 0.97 * 0.9
            assert float(got[t, e]) == pytest.approx(total, abs=1e-12)


def test_rows_that_only_reset_hand_nothing_on() -> None:
    ones = torch.ones(3, 1)
    no = torch.zeros(3, 1, dtype=torch.bool)
    valid = torch.tensor([[True], [False], [True]])
    junk = torch.tensor([[1.0], [math.nan], [1.0]])
    got = gae(junk, 0 * ones, 0 * ones, no, no, gamma=1.0, gae_lambda=1.0, valid=valid)
    assert got.flatten().tolist() == [1.0, 0.0, 1.0]


def test_chunks_normalised_by_the_whole_equal_the_whole() -> None:
    x = torch.tensor([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0])
    total = moments(x[:3]) + moments(x[3:])  # what two processes, or two chunks, add up
    parts = [normalise_advantages(part, total) for part in (x[:3], x[3:])]
    assert torch.allclose(torch.cat(parts), normalise_advantages(x))
    z = torch.cat(parts)
    assert float(z.mean()) == pytest.approx(0, abs=1e-6)
    assert float(z.std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_large_equal_advantages_are_not_blown_up() -> None:
    assert normalise_advantages(torch.full((11,), 12345.678)).tolist() == [0.0] * 11


def test_no_advantages_are_no_error() -> None:
    assert normalise_advantages(torch.zeros(0)).shape == (0,)
