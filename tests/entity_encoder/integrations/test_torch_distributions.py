from typing import Any

import pytest
import torch
from gymnasium import spaces

from entity_encoder.distributions import (
    DiagonalGaussian,
    MaskedCategorical,
    MaskedMultiCategorical,
)
from entity_encoder.integrations.torch_distributions import distribution_class, parameters


def rebuilt(space: spaces.Space[Any], ours: Any) -> Any:
    names, kind = distribution_class(space)
    build: Any = kind
    return build(**dict(zip(names, parameters(ours), strict=True)))


def test_a_masked_choice_keeps_its_probabilities_entropy_and_gradients() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0], [1.0, 0.5, -0.7]], requires_grad=True)
    mask = torch.tensor([[1, 0, 1], [1, 1, 1]]) == 1
    ours = MaskedCategorical(logits, mask)
    theirs = rebuilt(spaces.Discrete(3), ours)
    torch.testing.assert_close(theirs.probs, ours.probs)
    assert theirs.probs[0, 1] == 0
    action = torch.tensor([2, 1])
    torch.testing.assert_close(theirs.log_prob(action), ours.log_prob(action))
    torch.testing.assert_close(theirs.entropy(), ours.entropy())
    (first,) = torch.autograd.grad((theirs.entropy() + theirs.log_prob(action)).sum(), logits)
    again = MaskedCategorical(logits, mask)
    (second,) = torch.autograd.grad((again.entropy() + again.log_prob(action)).sum(), logits)
    torch.testing.assert_close(first, second)


def test_several_choices_are_added_up_and_absent_actors_do_nothing() -> None:
    logits = torch.arange(12.0).reshape(1, 3, 4).sin()
    ours = MaskedMultiCategorical(logits, None, torch.tensor([[True, False, True]]))
    theirs = rebuilt(spaces.MultiDiscrete([4, 4, 4]), ours)
    action = torch.tensor([[3, 0, 2]])
    torch.testing.assert_close(theirs.log_prob(action), ours.log_prob(action))
    torch.testing.assert_close(theirs.entropy(), ours.entropy())
    assert bool((theirs.sample((20,))[..., 1] == 0).all())


def test_a_gaussian_keeps_its_density() -> None:
    ours = DiagonalGaussian(torch.tensor([[0.5, -1.0]]), torch.tensor([0.1, -0.3]))
    theirs = rebuilt(spaces.Box(-9, 9, (2,)), ours)
    action = torch.tensor([[0.2, 0.4]])
    torch.testing.assert_close(theirs.log_prob(action), ours.log_prob(action))
    torch.testing.assert_close(theirs.entropy(), ours.entropy())


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-1, 1, (2, 2)), r"one axis, got shape \(2, 2\)"),
        (spaces.Discrete(3, start=2), r"counted from 0, got Discrete\(3, start=2\)"),
        (spaces.MultiDiscrete([2, 2], start=[0, 1]), "counted from 0"),
        (spaces.MultiBinary(3), r"must be Discrete, .* got MultiBinary"),
    ],
    ids=["matrix", "start", "starts", "bits"],
)
def test_other_action_spaces_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distribution_class(space)
