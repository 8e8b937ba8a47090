"""Claims about masked switches."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Bernoulli

from entity_encoder.distributions import MaskedBernoulli


def test_values_equal_the_unmasked_reference() -> None:
    logits = 3 * torch.randn(7, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    d = MaskedBernoulli(logits)
    reference = Bernoulli(logits=logits)
    action = d.sample(torch.Generator().manual_seed(2))
    torch.testing.assert_close(d.log_prob(action), reference.log_prob(action.double()).sum(-1))
    torch.testing.assert_close(d.entropy(), reference.entropy().sum(-1))
    torch.testing.assert_close(d.probs, logits.sigmoid())


def test_masked_switches_are_off_for_certain() -> None:
    d = MaskedBernoulli(torch.tensor([[9.0, 0.0, 9.0]]), torch.tensor([[1, 1, 0]]))
    assert d.probs[0, 2] == 0
    assert d.mode().tolist() == [[1, 0, 0]]
    assert d.sample()[0, 2] == 0
    off, on = torch.tensor([[1, 0, 0]]), torch.tensor([[1, 0, 1]])
    # log s(9) + log s(0)
    expected = -math.log1p(math.exp(-9)) - math.log(2)
    assert d.log_prob(off).item() == pytest.approx(expected, abs=1e-6)
    assert d.log_prob(on).item() == -math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_entropy_gradient_equals_the_closed_form(dtype: torch.dtype) -> None:
    # dH/dx = -x s(x) (1 - s(x)); 0 for a masked switch.
    x = torch.tensor([[0.5, -2.0, 0.0, 90.0, -90.0, 1.0]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]])
    MaskedBernoulli(x, mask).entropy().sum().backward()
    values = x.detach().double()
    expected = -values * values.sigmoid() * (1 - values.sigmoid()) * mask
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), expected, atol=3e-3, rtol=1e-2)


@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_masked_and_inactive_logits_are_unobservable(junk: float) -> None:
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    mask = torch.rand(3, 4, generator=torch.Generator().manual_seed(2)) < 0.5
    active = torch.tensor([True, False, True])
    keep = mask & active[:, None]
    x = torch.where(keep, logits, junk).requires_grad_()
    d = MaskedBernoulli(x, mask, active)
    (d.entropy() + d.log_prob(d.mode())).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert (x.grad[~keep] == 0).all()
    assert d.entropy()[1] == 0
    assert d.mode()[1].tolist() == d.sample()[1].tolist() == [0, 0, 0, 0]
    assert d.log_prob(torch.ones(3, 4, dtype=torch.long))[1] == 0


def test_inactive_rows_need_no_mask() -> None:
    d = MaskedBernoulli(torch.ones(2, 3), active=torch.tensor([False, True]))
    assert d.log_prob(torch.ones(2, 3)).tolist()[0] == 0
    assert d.entropy()[0] == 0


def test_samples_follow_the_probabilities() -> None:
    d = MaskedBernoulli(torch.tensor([1.0, -1.0, 0.0]).expand(20_000, 3))
    shares = d.sample(torch.Generator().manual_seed(4)).double().mean(0)
    torch.testing.assert_close(shares, d.probs[0].double(), atol=0.018, rtol=0)  # 5 errors


def test_several_axes_form_one_action() -> None:
    d = MaskedBernoulli(torch.zeros(5, 2, 3), event_dims=2, active=torch.tensor([1, 1, 0, 1, 1]))
    assert d.sample().shape == (5, 2, 3)
    torch.testing.assert_close(d.entropy()[0].item(), 6 * math.log(2))
    assert d.log_prob(torch.ones(5, 2, 3)).shape == (5,)
    assert d.log_prob(torch.ones(5, 2, 3))[2] == 0
    action = d.sample()
    assert torch.equal(d.to_env(action), action)


def test_misfits_are_named() -> None:
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\), got \(2, 4\)"):
        MaskedBernoulli(torch.zeros(2, 3), torch.ones(2, 4))
    with pytest.raises(ValueError, match="must hold exactly 0 and 1"):
        MaskedBernoulli(torch.zeros(2, 3), torch.full((2, 3), 0.5))
    with pytest.raises(ValueError, match=r"action must have shape \(2, 3\), got \(2,\)"):
        MaskedBernoulli(torch.zeros(2, 3)).log_prob(torch.zeros(2))


def test_no_rows_work() -> None:
    d = MaskedBernoulli(torch.zeros(0, 3))
    assert d.log_prob(d.sample()).shape == d.entropy().shape == (0,)
