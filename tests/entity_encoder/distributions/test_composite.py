"""Claims about actions of several kinds taken together."""

from __future__ import annotations

import math

import pytest
import torch

from entity_encoder.distributions import (
    Composite,
    DiagonalGaussian,
    MaskedBernoulli,
    MaskedCategorical,
)


def test_joint_values_are_sums_over_parts() -> None:
    kind = MaskedCategorical(torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]))
    move = DiagonalGaussian(torch.ones(2, 2), torch.zeros(2), low=torch.tensor(-0.5))
    flags = MaskedBernoulli(torch.zeros(2, 5))
    d = Composite({"kind": kind, "rest": Composite([move, flags])})
    action = d.sample(torch.Generator().manual_seed(1))
    assert set(action) == {"kind", "rest"}
    assert isinstance(action["rest"], tuple)
    expected = (
        kind.log_prob(action["kind"])
        + move.log_prob(action["rest"][0])
        + flags.log_prob(action["rest"][1])
    )
    torch.testing.assert_close(d.log_prob(action), expected)
    torch.testing.assert_close(d.entropy(), kind.entropy() + move.entropy() + flags.entropy())
    assert torch.equal(d.mode()["kind"], kind.mode())
    assert d.probs["rest"][0] is None
    assert torch.equal(d.probs["kind"], kind.probs)
    raw = {"kind": action["kind"], "rest": (torch.full((2, 2), -9.0), action["rest"][1])}
    assert (d.to_env(raw)["rest"][0] == -0.5).all()


def test_an_unused_part_is_excluded() -> None:
    # Kind 0 is "do nothing"; kinds 1 and 2 need a target.
    kind = MaskedCategorical(torch.zeros(2, 3))
    logits = torch.zeros(2, 4, requires_grad=True)
    target = MaskedCategorical(logits)
    d = Composite({"kind": kind, "target": target}, {"target": ("kind", (1, 2))})
    action = {"kind": torch.tensor([0, 2]), "target": torch.tensor([3, 3])}
    # log 1/3 for the kind, log 1/4 more where the target counts.
    expected = [-math.log(3), -math.log(3) - math.log(4)]
    assert d.log_prob(action).tolist() == pytest.approx(expected, abs=1e-6)
    # H = log 3 + (2/3) log 4
    assert d.entropy()[0].item() == pytest.approx(math.log(3) + 2 / 3 * math.log(4), abs=1e-6)
    d.log_prob(action).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[0] == 0).all()
    assert (logits.grad[1] != 0).all()


def test_entropy_with_a_condition_is_that_of_the_joint_outcomes() -> None:
    kind = MaskedCategorical(torch.tensor([[0.3, -1.0]]), start=1)
    target = MaskedCategorical(torch.tensor([[0.5, 0.0, 2.0]]))
    d = Composite([kind, target], {1: (0, [2])})
    outcomes = [kind.probs[0, 0], *(kind.probs[0, 1] * target.probs[0])]
    expected = -sum(p.item() * math.log(p.item()) for p in outcomes)
    assert d.entropy().item() == pytest.approx(expected, abs=1e-6)


def test_misfits_are_named() -> None:
    part = MaskedCategorical(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="parts must hold at least one distribution"):
        Composite({})
    with pytest.raises(ValueError, match=r"unconditional one among .*'b' decided by 'c'"):
        Composite({"a": part, "b": part}, {"b": ("c", (1,))})
    with pytest.raises(ValueError, match="'b' decided by 'a'"):
        Composite({"a": part, "b": part}, {"b": ("a", (1,)), "a": ("b", (1,))})
    with pytest.raises(ValueError, match="the condition of 'b' must list choices of 'a'"):
        Composite({"a": part, "b": part}, {"b": ("a", ())})
    with pytest.raises(ValueError, match=r"action must have the parts \['a', 'b'\], got \['a'\]"):
        Composite({"a": part, "b": part}).log_prob({"a": torch.zeros(1)})
