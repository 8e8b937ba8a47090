"""Claims about one masked choice per row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entity_encoder.distributions import MaskedCategorical


def reference(logits: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and entropy of one row in float64, over its legal choices alone."""
    legal = np.flatnonzero(mask)
    scores = logits[legal].astype(np.float64)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    probs = np.zeros(len(logits))
    probs[legal] = weights
    positive = weights[weights > 0]
    return probs, -(positive * np.log(positive)).sum()


def random_rows(seed: int, rows: int = 7, choices: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, choices, generator=generator)
    mask = torch.rand(rows, choices, generator=generator) < 0.5
    mask[torch.arange(rows), torch.arange(rows) % choices] = True
    return logits, mask


def test_illegal_choices_have_probability_exactly_zero() -> None:
    # Multiplying the logits by the mask would leave 0.844 on the illegal third choice.
    d = MaskedCategorical(torch.tensor([[-3.0, -2.0, 5.0]]), torch.tensor([[True, True, False]]))
    assert d.probs[0, 2].item() == 0.0
    assert d.log_prob(torch.tensor([2])).item() == -math.inf
    # e^-3 / (e^-3 + e^-2) = 1 / (1 + e)
    assert d.probs[0, 0].item() == pytest.approx(1 / (1 + math.e), abs=1e-7)


def test_entropy_of_two_equal_legal_choices_is_log_two() -> None:
    d = MaskedCategorical(torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([[1, 1, 0]]))
    assert d.entropy().item() == pytest.approx(math.log(2), abs=1e-7)


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 11))
def test_values_equal_the_float64_reference(seed: int, rows: int, choices: int) -> None:
    logits, mask = random_rows(seed, rows, choices)
    d = MaskedCategorical(logits, mask)
    for i in range(rows):
        probs, entropy = reference(logits[i].numpy(), mask[i].numpy())
        np.testing.assert_allclose(d.probs[i].numpy(), probs, atol=1e-6)
        assert d.entropy()[i].item() == pytest.approx(entropy, abs=1e-5)
        assert (d.probs[i][~mask[i]] == 0).all()


def test_entropy_gradient_equals_the_closed_form() -> None:
    # dH/dx_j = -p_j (log p_j + H), and 0 for an illegal choice.
    logits = torch.tensor([[0.3, 0.1, 2.0], [-1.0, 4.0, 0.5]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    MaskedCategorical(logits, mask).entropy().sum().backward()
    assert logits.grad is not None
    for i in range(2):
        probs, entropy = reference(logits[i].detach().numpy(), mask[i].numpy())
        logs = np.log(np.where(probs > 0, probs, 1.0))
        np.testing.assert_allclose(logits.grad[i].numpy(), -probs * (logs + entropy), atol=1e-6)
    np.testing.assert_allclose(logits.grad[0].numpy(), [-0.0495033, 0.0495033, 0], atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e20, 1e38])
@pytest.mark.parametrize("weight", [1.0, 1e6])
def test_gradients_stay_finite_whatever_the_logits(scale: float, weight: float) -> None:
    logits = (scale * torch.tensor([[0.5, -1.0, 1.0, 0.9]])).requires_grad_()
    d = MaskedCategorical(logits, torch.tensor([[True, True, False, True]]))
    (weight * d.entropy().sum() + d.log_prob(torch.tensor([3])).sum()).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_illegal_and_inactive_logits_are_unobservable(junk: float) -> None:
    logits, mask = random_rows(3)
    active = torch.tensor([True, True, False, True, True, False, True])
    results = []
    for filler in (0.0, junk):
        x = torch.where(mask & active[:, None], logits, filler).requires_grad_()
        d = MaskedCategorical(x, mask, active)
        (d.entropy() + d.log_prob(d.mode())).sum().backward()
        assert x.grad is not None
        results.append((d.probs, d.entropy(), d.log_prob(d.mode()), d.mode(), x.grad))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_inactive_rows_contribute_nothing() -> None:
    logits = torch.tensor([[1.0, 2.0, 9.0], [3.0, 1.0, 2.0]], requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, True, True]])
    d = MaskedCategorical(logits, mask, torch.tensor([False, True]))
    assert d.mode().tolist() == [0, 0]
    assert d.sample()[0] == 0
    action = torch.tensor([-7, 1])  # an absent actor's stored action may be anything
    assert d.log_prob(action)[0] == 0
    assert d.entropy()[0] == 0
    assert (d.probs[0] == 0).all()
    (d.log_prob(action) + d.entropy()).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[0] == 0).all()
    assert (logits.grad[1] != 0).all()


def test_no_legal_choice_names_the_row() -> None:
    mask = torch.ones(3, 5, 2, dtype=torch.bool)
    mask[1, 4] = False
    with pytest.raises(
        ValueError, match=r"at least one legal choice .* got none in index 1, row 4"
    ):
        MaskedCategorical(torch.zeros(3, 5, 2), mask)
    with pytest.raises(ValueError, match=r"'moves' must leave .* row 1; .* active=False"):
        MaskedCategorical(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 0]]), name="'moves'")
    with pytest.raises(ValueError, match="got none in the only row"):
        MaskedCategorical(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="got none in row 0"):
        MaskedCategorical(torch.zeros(2, 0))


def test_without_validation_a_row_without_choice_does_not_act() -> None:
    mask = torch.tensor([[0, 0, 0], [1, 0, 1]])
    d = MaskedCategorical(torch.ones(2, 3), mask, validate=False)
    assert d.log_prob(torch.tensor([2, 0]))[0] == d.entropy()[0] == d.mode()[0] == 0
    assert d.entropy()[1].item() == pytest.approx(math.log(2))
    rows = torch.tensor([True, True])
    again = MaskedCategorical(torch.ones(2, 3), mask, rows, validate=False)
    assert torch.equal(again.probs, d.probs)
    assert (d.probs[0] == 0).all()


def test_misfit_masks_are_named() -> None:
    with pytest.raises(ValueError, match=r"action mask must have shape \(2, 3\), got \(2, 5\)"):
        MaskedCategorical(torch.zeros(2, 3), torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\), got \(1, 2, 3\)"):
        MaskedCategorical(torch.zeros(2, 3), torch.ones(1, 2, 3))
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\), got \(2, 1\)"):
        MaskedCategorical(torch.zeros(2, 3), torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"active rows of the action mask must have shape \(2,\)"):
        MaskedCategorical(torch.zeros(2, 3), active=torch.ones(3))
    with pytest.raises(ValueError, match="must hold exactly 0 and 1"):
        MaskedCategorical(torch.zeros(1, 3), torch.tensor([[0.0, -1e9, 0.0]]))
    with pytest.raises(ValueError, match=r"action must have shape \(4,\), got \(4, 1\)"):
        MaskedCategorical(torch.zeros(4, 3)).log_prob(torch.zeros(4, 1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int64, torch.float32])
def test_masks_of_every_dtype_mean_the_same(dtype: torch.dtype) -> None:
    logits, mask = random_rows(5)
    expected = MaskedCategorical(logits, mask).probs
    assert torch.equal(MaskedCategorical(logits, mask.to(dtype)).probs, expected)


def test_one_mask_serves_all_rows() -> None:
    logits, _ = random_rows(5)
    mask = torch.tensor([True, False, True, True, False])
    expected = MaskedCategorical(logits, mask.expand(7, 5)).probs
    assert torch.equal(MaskedCategorical(logits, mask).probs, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite_and_close(dtype: torch.dtype) -> None:
    logits, mask = random_rows(11)
    x = logits.to(dtype).requires_grad_()
    d = MaskedCategorical(x, mask)
    expected = MaskedCategorical(x.detach().float(), mask)
    assert d.entropy().dtype == torch.float32
    torch.testing.assert_close(d.probs, expected.probs, rtol=0, atol=0)
    (d.entropy() + d.log_prob(d.mode())).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_mode_is_an_index_into_all_choices() -> None:
    # An index into the legal ones only would be 1.
    d = MaskedCategorical(torch.tensor([[0.0, 1.0, 10.0, 2.0]]), torch.tensor([[1, 0, 1, 0]]))
    assert d.mode().item() == 2
    assert math.isfinite(d.log_prob(d.mode()).item())


def test_a_forced_choice_has_log_probability_zero() -> None:
    d = MaskedCategorical(torch.tensor([[5.0, -3.0, 2.0]]), torch.tensor([[0, 1, 0]]))
    assert d.sample().item() == 1
    assert d.log_prob(torch.tensor([1])).item() == 0
    assert d.entropy().item() == 0


def test_samples_follow_the_probabilities() -> None:
    logits = torch.tensor([1.0, -1.0, 0.5, 2.0, 9.0])
    mask = torch.tensor([1, 1, 1, 1, 0])
    draws = 40_000
    d = MaskedCategorical(logits.expand(draws, 5), mask.expand(draws, 5))
    counts = torch.bincount(d.sample(torch.Generator().manual_seed(3)), minlength=5).double()
    expected, _ = reference(logits.numpy(), mask.numpy())
    assert counts[4] == 0
    # Standard error is at most 0.5 / sqrt(40,000) = 0.0025.
    np.testing.assert_allclose((counts / draws).numpy(), expected, atol=0.0125)


def test_sampling_repeats_with_its_generator() -> None:
    logits, mask = random_rows(2, 50)
    d = MaskedCategorical(logits, mask)
    a, b = (d.sample(torch.Generator().manual_seed(9)) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.isfinite(d.log_prob(a)).all()


def test_choices_need_not_count_from_zero() -> None:
    d = MaskedCategorical(torch.tensor([[0.0, 3.0, 1.0]]), start=-5)
    assert d.mode().item() == -4
    assert d.log_prob(torch.tensor([-4])).exp().item() == pytest.approx(d.probs[0, 1].item())
    assert -5 <= d.sample().item() <= -3


def test_float_actions_of_a_replay_are_indices() -> None:
    d = MaskedCategorical(torch.tensor([[0.0, 3.0]]))
    assert torch.equal(d.log_prob(torch.tensor([1.0])), d.log_prob(torch.tensor([1])))


@pytest.mark.parametrize("shape", [(0, 3), (5, 0, 3), (0, 0)])
def test_batches_of_nothing_work(shape: tuple[int, ...]) -> None:
    d = MaskedCategorical(torch.zeros(shape), torch.ones(shape))
    assert d.sample().shape == d.mode().shape == d.entropy().shape == shape[:-1]
    assert d.log_prob(d.sample()).shape == shape[:-1]


def test_no_choices_at_all_suit_inactive_rows() -> None:
    d = MaskedCategorical(torch.zeros(3, 0), torch.ones(3, 0), torch.zeros(3))
    assert d.sample().tolist() == d.mode().tolist() == [0, 0, 0]
    assert d.log_prob(d.mode()).tolist() == [0, 0, 0]
    assert d.entropy().tolist() == [0, 0, 0]


def test_leading_dimensions_are_free() -> None:
    logits, mask = random_rows(4, 15)
    flat = MaskedCategorical(logits, mask)
    nested = MaskedCategorical(logits.view(3, 5, 5), mask.view(3, 5, 5))
    single = MaskedCategorical(logits[7], mask[7])
    assert torch.equal(nested.mode().flatten(), flat.mode())
    assert torch.equal(nested.entropy().flatten(), flat.entropy())
    assert single.log_prob(single.mode()) == flat.log_prob(flat.mode())[7]
    action = flat.sample()
    assert torch.equal(flat.to_env(action), action)
