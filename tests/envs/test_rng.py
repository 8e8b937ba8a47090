import math

import pytest
import torch

from entity_encoder.envs.rng import Rng, seeds_to_keys


def make(n: int = 11, seed: int = 5, episode: int = 0, step: int = 0) -> Rng:
    keys = seeds_to_keys(range(seed, seed + n))
    return Rng(keys, torch.full((n,), episode), step)


def draw(rng: Rng) -> list[torch.Tensor]:
    return [rng.uniform(3), rng.normal(2, 5), rng.integers(7, 4, low=-2), rng.permutation(6)]


def test_numbers_of_a_row_do_not_depend_on_the_number_of_rows() -> None:
    many = draw(make(1031))
    for row in (0, 1, 513, 1030):
        one = draw(make(1, seed=5 + row))
        for a, b in zip(many, one, strict=True):
            assert torch.equal(a[row], b[0])


@pytest.mark.parametrize("step", [3, torch.arange(11)])
def test_some_rows_draw_alone_what_they_draw_together(step: int | torch.Tensor) -> None:
    whole = Rng(seeds_to_keys(range(11)), torch.arange(11), step)
    where = slice(2, None, 4)
    for some, every in zip(draw(whole.rows(where)), draw(whole), strict=True):
        assert torch.equal(some, every[where])


def test_seed_episode_and_step_each_change_every_number() -> None:
    base = make().bits(9)
    for other in (make(seed=6), make(episode=1), make(step=1)):
        assert not (base == other.bits(9)).any()
    assert torch.equal(base[1:], make(seed=6).bits(9)[:-1])  # row i is seeded s + i


def test_step_may_differ_between_rows() -> None:
    keys, episode = seeds_to_keys([3, 4]), torch.tensor([0, 2])
    both = Rng(keys, episode, torch.tensor([1, 7])).bits(3)
    assert torch.equal(both[0], Rng(keys[:1], episode[:1], 1).bits(3)[0])
    assert torch.equal(both[1], Rng(keys[1:], episode[1:], 7).bits(3)[0])


def test_second_draw_continues_the_first() -> None:
    rng = make()
    two = torch.cat((rng.bits(2), rng.bits(3)), 1)
    assert torch.equal(two, make().bits(5))


def test_bits_are_never_negative() -> None:
    assert (make(999).bits(31) >= 0).all()


@pytest.mark.parametrize("axis", ["seed", "episode", "step", "draw"])
def test_uniform_numbers_are_uniform_and_uncorrelated_along(axis: str) -> None:
    n = 20_000
    if axis == "seed":
        x = make(n).uniform(1)[:, 0]
    elif axis == "draw":
        x = make(1).uniform(n)[0]
    else:
        keys, count = seeds_to_keys([8]).expand(n), torch.arange(n)
        zero = torch.zeros_like(count)
        x = (Rng(keys, count, 0) if axis == "episode" else Rng(keys, zero, count)).uniform(1)[:, 0]
    x = x.double()
    assert 0 <= x.min() < 1e-3
    assert 1 - 1e-3 < x.max() < 1
    # Standard errors: 1/sqrt(12 n) = .0020 of the mean, 1/sqrt(180 n) = .00053 of the variance,
    # 1/sqrt(n) = .0071 of the correlation; four of each.
    assert abs(x.mean() - 0.5) < 4 / math.sqrt(12 * n)
    assert abs(x.var() - 1 / 12) < 4 / math.sqrt(180 * n)
    assert abs(torch.corrcoef(torch.stack((x[:-1], x[1:])))[0, 1]) < 4 / math.sqrt(n)
    # Chi-square over 16 bins has 15 degrees of freedom: mean 15, standard deviation 5.5.
    counts = torch.histc(x, 16, 0, 1)
    assert ((counts - n / 16) ** 2 / (n / 16)).sum() < 15 + 5 * 5.5


def test_uniform_respects_its_range() -> None:
    x = make(500).uniform(7, low=-3.0, high=11.0)
    assert x.shape == (500, 7)
    assert x.dtype == torch.float32
    assert -3 <= x.min() < -2.9
    assert 10.9 < x.max() <= 11


def test_integers_cover_their_range_and_take_a_tensor_as_end() -> None:
    assert make(400).integers(5, 3, low=-2).unique().tolist() == [-2, -1, 0, 1, 2, 3, 4]
    high = torch.tensor([1, 3, 9])[:, None]
    x = make(3).integers(high, 300)
    assert x.amax(1).tolist() == [0, 2, 8]
    assert x.amin(1).tolist() == [0, 0, 0]


def test_normal_numbers_have_the_moments_of_a_normal_distribution() -> None:
    x = make(10_000).normal(2).flatten().double()
    n = len(x)
    assert abs(x.mean()) < 4 / math.sqrt(n)
    assert abs(x.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((x**3).mean()) < 4 * math.sqrt(15 / n)
    assert abs((x**4).mean() - 3) < 4 * math.sqrt(96 / n)


def test_every_order_is_equally_likely() -> None:
    order = make(12_000).permutation(4)
    assert torch.equal(order.sort(1).values, torch.arange(4).expand(12_000, 4))
    code = (order * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = torch.unique(code, return_counts=True)[1]
    assert len(counts) == 24
    # 12,000 / 24 = 500 expected; 23 degrees of freedom, standard deviation 6.8.
    assert ((counts - 500.0) ** 2 / 500).sum() < 23 + 5 * 6.8


def test_seeds_beyond_63_bits_are_accepted() -> None:
    keys = seeds_to_keys([0, 2**63 - 1, 2**63, 2**64 + 1, 1])
    assert keys[3] == keys[4]  # seeds count modulo 2**64
    assert len(keys[:4].unique()) == 4
