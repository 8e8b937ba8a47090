"""What a policy is inclined to do, as bars, for every kind of action space."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces

from entity_encoder.agents.attention import ActionBar, action_bars
from entity_encoder.distributions import (
    Composite,
    DiagonalGaussian,
    MaskedBernoulli,
    MaskedCategorical,
    MaskedMultiCategorical,
)
from entity_encoder.spaces import PerEntity, SelectEntity

NOTHING = -1e9


def logits(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities, [1.0] * len(probabilities)]).log()  # the second row: other


def shown(bars: tuple[ActionBar, ...]) -> list[tuple[str, str]]:
    assert all(0 <= bar.share <= 1 for bar in bars)
    return [(bar.label, bar.text) for bar in bars]


def test_choices_have_their_probabilities_and_illegal_ones_no_bar() -> None:
    mask = torch.tensor([True, False, True])  # given once for all rows
    bars = action_bars(
        MaskedCategorical(logits(0.1, 0.6, 0.3), mask), spaces.Discrete(3), names=("up", "down")
    )
    assert shown(bars) == [("up", "0.25"), ("action 2", "0.75")]  # .1 and .3 of the .4 that is left
    assert [bar.share for bar in bars] == pytest.approx([0.25, 0.75])


def test_a_space_that_starts_elsewhere_keeps_its_numbers() -> None:
    bars = action_bars(MaskedCategorical(logits(0.5, 0.5), start=7), spaces.Discrete(2, start=7))
    assert [bar.label for bar in bars] == ["action 7", "action 8"]


def test_a_pointer_names_entities() -> None:
    bars = action_bars(MaskedCategorical(logits(0.2, 0.8)), SelectEntity("rock", 2))
    assert shown(bars) == [("rock 0", "0.20"), ("rock 1", "0.80")]


def test_each_present_actor_shows_its_likeliest_choice() -> None:
    space = PerEntity("ship", 3, 1, target="rock", target_slots=2)
    table = torch.tensor([[[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.1, 0.8, 0.1]]]).log()
    active = torch.tensor([[True, True, False]])
    bars = action_bars(MaskedMultiCategorical(table, active=active), space)
    assert shown(bars) == [("ship 0", "0: 0.70"), ("ship 1", "rock 1: 0.40")]


def test_parts_of_several_sizes_are_numbered() -> None:
    flat = torch.tensor([[0.25, 0.75, 0.2, 0.5, 0.3]]).log()
    bars = action_bars(MaskedMultiCategorical.from_flat(flat, [2, 3]), spaces.MultiDiscrete([2, 3]))
    assert shown(bars) == [("part 0", "1: 0.75"), ("part 1", "1: 0.50")]


def test_switches_show_the_chance_of_on() -> None:
    odds = torch.tensor([[0.0, NOTHING]])
    assert shown(action_bars(MaskedBernoulli(odds), spaces.MultiBinary(2))) == [
        ("switch 0", "on: 0.50"),
        ("switch 1", "on: 0.00"),
    ]


def test_numbers_stand_between_their_bounds() -> None:
    box = spaces.Box(-2, 2, (3,))
    low, high = torch.tensor(box.low), torch.tensor(box.high)
    mean = torch.tensor([[1.0, -9.0, 0.0]])
    log_std = torch.full((3,), 0.5).log()
    bars = action_bars(DiagonalGaussian(mean, log_std, low=low, high=high), box)
    assert shown(bars)[:2] == [("number 0", "+1.00, sd 0.50"), ("number 1", "-2.00, sd 0.50")]
    assert [bar.share for bar in bars] == [0.75, 0.0, 0.5]


def test_without_bounds_a_number_has_no_length() -> None:
    box = spaces.Box(-float("inf"), float("inf"), (1,))
    (bar,) = action_bars(DiagonalGaussian(torch.tensor([[3.0]]), torch.zeros(1)), box)
    assert (bar.share, bar.text) == (0.0, "+3.00, sd 1.00")


@pytest.mark.parametrize("named", [True, False])
def test_parts_of_a_composite_carry_their_key(named: bool) -> None:
    part, space = MaskedCategorical(logits(0.5, 0.5)), spaces.Discrete(2)
    parts: Any = {"jump": part} if named else [part]
    whole: Any = spaces.Dict({"jump": space}) if named else spaces.Tuple([space])
    key = "jump" if named else "0"
    assert [bar.label for bar in action_bars(Composite(parts), whole)] == [
        f"{key} action 0",
        f"{key} action 1",
    ]
