"""On an accelerator nothing waits for a value: shown on the meta device, which has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from entity_encoder.distributions import (
    ActionDistribution,
    Composite,
    DiagonalGaussian,
    MaskedBernoulli,
    MaskedCategorical,
    MaskedMultiCategorical,
)


def numbers(*shape: int) -> Tensor:
    return torch.zeros(shape, device="meta", requires_grad=True)


def flags(*shape: int, dtype: torch.dtype = torch.bool) -> Tensor:
    return torch.ones(shape, dtype=dtype, device="meta")


MAKERS: dict[str, Callable[[], ActionDistribution]] = {
    "categorical": lambda: MaskedCategorical(numbers(3, 5), flags(3, 5), flags(3)),
    "float mask": lambda: MaskedCategorical(numbers(3, 5), flags(3, 5, dtype=torch.float32)),
    "multi": lambda: MaskedMultiCategorical(numbers(3, 2, 5), flags(3, 2, 5), flags(3, 2)),
    "bernoulli": lambda: MaskedBernoulli(numbers(3, 5), flags(3, 5), flags(3)),
    "gaussian": lambda: DiagonalGaussian(
        numbers(3, 2), numbers(2), flags(3), mask=flags(3, 2), low=numbers(2), high=numbers(2)
    ),
    "squashed": lambda: DiagonalGaussian(
        numbers(3, 2), numbers(2), low=numbers(2), high=numbers(2), squash=True
    ),
    "composite": lambda: Composite(
        {
            "kind": MaskedCategorical(numbers(3, 4), flags(3, 4)),
            "aim": MaskedCategorical(numbers(3, 5), flags(3, 5)),
        },
        {"aim": ("kind", (1, 2))},
    ),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_no_value_is_looked_at(make: Callable[[], ActionDistribution]) -> None:
    d = make()
    for action in (d.sample(), d.mode()):
        d.to_env(action)
        assert d.log_prob(action).shape == (3,)
    (d.log_prob(action) + d.entropy()).sum().backward()
