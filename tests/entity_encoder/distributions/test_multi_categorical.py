"""Claims about several choices made at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entity_encoder.distributions import MaskedCategorical, MaskedMultiCategorical


def test_joint_values_are_sums_over_decisions() -> None:
    logits = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(1))
    d = MaskedMultiCategorical(logits)
    action = d.sample(torch.Generator().manual_seed(2))
    parts = [MaskedCategorical(logits[:, m]) for m in range(3)]
    expected = sum(part.log_prob(action[:, m]) for m, part in enumerate(parts))
    torch.testing.assert_close(d.log_prob(action), expected)
    torch.testing.assert_close(d.entropy(), sum(part.entropy() for part in parts))
    assert action.shape == (7, 3)
    assert d.log_prob(action).shape == (7,)
    assert torch.equal(d.mode()[:, 1], parts[1].mode())


def test_absent_actors_contribute_nothing() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    active = torch.tensor([[True, False, True], [False, False, False]])
    d = MaskedMultiCategorical(logits, torch.zeros(2, 3, 5) + active[..., None], active)
    alone = MaskedCategorical(logits[0, [0, 2]])
    action = torch.tensor([[1, -9, 4], [7, 7, 7]])
    torch.testing.assert_close(d.log_prob(action)[0], alone.log_prob(action[0, [0, 2]]).sum())
    torch.testing.assert_close(d.entropy()[0], alone.entropy().sum())
    assert d.log_prob(action)[1] == 0
    assert d.entropy()[1] == 0
    assert d.sample()[1].tolist() == [0, 0, 0]
    (d.log_prob(action) + d.entropy()).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[~active] == 0).all()


def test_different_numbers_of_choices_share_flat_logits() -> None:
    nvec = [2, 5, 3]
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(1)).requires_grad_()
    mask = torch.ones(4, 10, dtype=torch.bool)
    mask[:, 3] = False  # the second decision's choice 1
    d = MaskedMultiCategorical.from_flat(logits, nvec, mask)
    parts = [
        MaskedCategorical(part, keep)
        for part, keep in zip(logits.split(nvec, -1), mask.split(nvec, -1), strict=True)
    ]
    torch.testing.assert_close(d.entropy(), sum(part.entropy() for part in parts))
    action = torch.stack([part.mode() for part in parts], -1)
    assert torch.equal(d.mode(), action)
    torch.testing.assert_close(
        d.log_prob(action), sum(part.log_prob(action[:, m]) for m, part in enumerate(parts))
    )
    assert (d.sample().numpy() < np.array(nvec)).all()
    assert (d.probs[:, 0, 2:] == 0).all()
    assert (d.probs[:, 1, 1] == 0).all()
    d.entropy().sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_flat_logits_without_a_mask_are_all_legal() -> None:
    d = MaskedMultiCategorical.from_flat(torch.zeros(1, 5), [2, 3])
    torch.testing.assert_close(d.entropy(), torch.tensor([np.log(6.0)], dtype=torch.float32))


def test_actions_keep_the_axes_of_their_space() -> None:
    logits = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(1))
    flat = MaskedMultiCategorical(logits)
    d = MaskedMultiCategorical(logits, shape=(2, 3), start=torch.arange(6))
    assert d.mode().shape == d.sample().shape == (4, 2, 3)
    assert torch.equal(d.mode().flatten(1), flat.mode() + torch.arange(6))
    assert torch.equal(d.log_prob(d.mode()), flat.log_prob(flat.mode()))
    with pytest.raises(ValueError, match=r"action must have shape \(4, 2, 3\), got \(4, 6\)"):
        d.log_prob(flat.mode())
    action = d.sample()
    assert torch.equal(d.to_env(action), action)


def test_no_legal_choice_names_row_and_actor() -> None:
    mask = torch.ones(3, 4, 2)
    mask[2, 1] = 0
    with pytest.raises(ValueError, match="got none in row 2, actor 1"):
        MaskedMultiCategorical(torch.zeros(3, 4, 2), mask)


@pytest.mark.parametrize("shape", [(0, 3, 2), (5, 0, 2)])
def test_no_rows_and_no_actors_work(shape: tuple[int, ...]) -> None:
    d = MaskedMultiCategorical(torch.zeros(shape))
    assert d.sample().shape == shape[:2]
    assert d.log_prob(d.mode()).tolist() == d.entropy().tolist() == [0] * shape[0]
