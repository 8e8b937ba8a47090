import math

import pytest
import torch

from entity_encoder.agents.losses import approx_kl, clip_fraction, clipped_surrogate, value_loss


def test_surrogate_gradient_vanishes_only_where_clipping_helps_nobody() -> None:
    log_ratio = torch.log(torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1])).requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    clipped_surrogate(log_ratio, advantages, 0.2).sum().backward()
    # d(-A rho)/d(log rho) = -A rho where the unclipped term is the larger one
    assert log_ratio.grad is not None
    assert log_ratio.grad.tolist() == pytest.approx([0.0, 1.5, -0.5, 0.0, -1.1], abs=1e-6)


def test_value_loss_without_a_clip_range_is_half_the_squared_error() -> None:
    v, old, r = torch.tensor([1.0, 5.0]), torch.zeros(2), torch.tensor([3.0, 4.0])
    assert value_loss(v, old, r, None).tolist() == [2.0, 0.5]


def test_kl_estimate_is_exact_in_expectation() -> None:
    # sum_a p(a) k3(log q/p) = KL(p || q), in closed form for three actions
    p, q = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.3, 0.3, 0.4])
    expected = sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
    assert float((p * approx_kl(torch.log(q / p))).sum()) == pytest.approx(expected, abs=1e-6)


def test_clip_fraction_counts_ratios_outside_the_range() -> None:
    log_ratio = torch.log(torch.tensor([1.19, 1.21, 0.81, 0.79]))
    assert clip_fraction(log_ratio, 0.2).tolist() == [0.0, 1.0, 0.0, 1.0]
