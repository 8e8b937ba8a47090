"""Claims about real-valued actions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Independent, Normal

from entity_encoder.distributions import DiagonalGaussian

ONE = torch.tensor(1.0)


def test_log_probability_is_one_number_per_row() -> None:
    # Three standard normal components at their mean: -3/2 log(2 pi) = -2.756816.
    d = DiagonalGaussian(torch.zeros(4, 3), torch.zeros(3))
    assert d.log_prob(d.mode()).shape == (4,)
    assert d.log_prob(d.mode())[0].item() == pytest.approx(-2.756816, abs=1e-6)
    with pytest.raises(ValueError, match=r"action must have shape \(4, 3\), got \(4,\)"):
        d.log_prob(torch.zeros(4))


def test_clipping_changes_what_the_environment_gets_not_the_log_probability() -> None:
    d = DiagonalGaussian(torch.zeros(1, 1), torch.zeros(1), low=-ONE, high=ONE)
    raw = torch.tensor([[2.0]])
    # -2^2 / 2 - log(2 pi) / 2
    assert d.log_prob(raw).item() == pytest.approx(-2.9189385, abs=1e-6)
    assert d.to_env(raw).item() == 1.0
    assert DiagonalGaussian(torch.zeros(1, 1), torch.zeros(1)).to_env(raw).item() == 2.0


def test_one_sided_bounds_clip_one_side() -> None:
    low = torch.tensor([0.0, -math.inf])
    d = DiagonalGaussian(torch.zeros(1, 2), torch.zeros(2), low=low)
    assert d.to_env(torch.tensor([[-3.0, -3.0]])).tolist() == [[0.0, -3.0]]


def test_values_equal_the_reference() -> None:
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(7, 3, generator=generator)
    log_std = torch.randn(7, 3, generator=generator)
    d = DiagonalGaussian(mean, log_std)
    reference = Independent(Normal(mean, log_std.exp()), 1)
    action = d.sample(generator)
    torch.testing.assert_close(d.log_prob(action), reference.log_prob(action))
    torch.testing.assert_close(d.entropy(), reference.entropy())
    torch.testing.assert_close(d.std, log_std.exp())


def test_samples_have_the_moments_asked_for() -> None:
    d = DiagonalGaussian(torch.tensor([1.0, -2.0]).expand(20_000, 2), torch.tensor([0.0, -1.0]))
    draws = d.sample(torch.Generator().manual_seed(3))
    torch.testing.assert_close(draws.mean(0), torch.tensor([1.0, -2.0]), atol=0.04, rtol=0)
    torch.testing.assert_close(draws.std(0), torch.tensor([1.0, math.exp(-1)]), atol=0.03, rtol=0)
    assert not draws.requires_grad


def test_squashed_density_integrates_to_one_inside_the_bounds() -> None:
    mean, log_std = torch.tensor([[0.4]]), torch.tensor([-0.2])
    raw = torch.linspace(-9, 9, 20_001, dtype=torch.float64)[:, None]
    d = DiagonalGaussian(
        mean.double().expand(20_001, 1), log_std, squash=True, low=-3 * ONE, high=5 * ONE
    )
    action = d.to_env(raw).squeeze(-1)
    assert action.min() >= -3
    assert action.max() <= 5
    density = d.log_prob(raw).exp()
    assert torch.trapezoid(density, action).item() == pytest.approx(1.0, abs=1e-5)
    # The entropy is -integral p log p over the same axis.
    entropy = -torch.trapezoid(density * density.clamp(min=1e-300).log(), action)
    assert d.entropy()[0].item() == pytest.approx(entropy.item(), abs=2e-3)


def test_squashing_cancels_in_the_ratio() -> None:
    raw = torch.tensor([[0.3, -20.0], [30.0, 2.0]])
    ratios = []
    for squash in (False, True):
        new, old = (
            DiagonalGaussian(
                torch.full((2, 2), m), torch.zeros(2), squash=squash, low=-ONE, high=ONE
            )
            for m in (0.1, 0.0)
        )
        ratios.append(new.log_prob(raw) - old.log_prob(raw))
    torch.testing.assert_close(*ratios, atol=1e-4, rtol=1e-5)


def test_squashing_needs_bounds() -> None:
    with pytest.raises(ValueError, match="squash must come with both bounds"):
        DiagonalGaussian(torch.zeros(1, 2), torch.zeros(2), squash=True)


@pytest.mark.parametrize("squash", [False, True])
def test_unused_components_and_inactive_rows_contribute_nothing(squash: bool) -> None:
    mean = torch.tensor([[1.0, math.nan], [math.nan, math.nan], [0.5, -0.5]])
    mean.requires_grad_()
    log_std = torch.nn.Parameter(torch.zeros(2))
    mask = torch.tensor([[True, False], [True, True], [True, True]])
    active = torch.tensor([True, False, True])
    d = DiagonalGaussian(mean, log_std, active, mask=mask, squash=squash, low=-ONE, high=ONE)
    one = DiagonalGaussian(torch.tensor([[1.0]]), torch.zeros(1), squash=squash, low=-ONE, high=ONE)
    action = d.sample()
    assert action[0, 1] == 0
    assert action[1].tolist() == d.mode()[1].tolist() == [0, 0]
    torch.testing.assert_close(d.log_prob(action)[:1], one.log_prob(action[:1, :1]))
    torch.testing.assert_close(d.entropy()[:1], one.entropy())
    assert d.log_prob(action)[1] == d.entropy()[1] == 0
    (d.log_prob(action) + d.entropy()).sum().backward()
    for parameter in (mean, log_std):
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_full(dtype: torch.dtype) -> None:
    d = DiagonalGaussian(torch.full((3, 2), 0.5, dtype=dtype), torch.zeros(2, dtype=dtype))
    assert d.sample().dtype == d.log_prob(d.mode()).dtype == torch.float32
    assert d.log_prob(d.mode())[0].item() == pytest.approx(-math.log(2 * math.pi), abs=1e-6)


def test_several_axes_form_one_action_and_no_rows_work() -> None:
    d = DiagonalGaussian(
        torch.zeros(5, 2, 3), torch.zeros(2, 3), torch.ones(5, dtype=torch.bool), event_dims=2
    )
    assert d.log_prob(d.sample()).shape == d.entropy().shape == (5,)
    none = DiagonalGaussian(torch.zeros(0, 3), torch.zeros(3))
    assert none.log_prob(none.sample()).shape == none.entropy().shape == (0,)
