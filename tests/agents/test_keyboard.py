"""Keys to actions, in every space a person can handle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder.agents.keyboard import KEYS, Keyboard
from entity_encoder.spaces import PerEntity, SelectEntity


def press(keyboard: Keyboard, keys: str, observation: dict[str, np.ndarray] | None = None) -> Any:
    """Press keys one after the other and return what the last one gave."""
    action = None
    for key in keys.split():
        action = keyboard.press(key, observation or {})
    return action


def test_one_digit_is_one_choice() -> None:
    keyboard = Keyboard(spaces.Discrete(7))
    assert press(keyboard, "6") == 6
    assert press(keyboard, "7") is None
    assert keyboard.message == "7 means nothing here"
    assert keyboard.prompt({}) == "choose 0-6"


def test_keys_with_a_meaning_of_their_own_win() -> None:
    keyboard = Keyboard(spaces.Discrete(3), KEYS["Minefield"])
    assert [press(keyboard, key) for key in ("Left", "Up", "Right", "1")] == [0, 1, 2, 1]
    assert keyboard.prompt({}) == "Left: 0  Up: 1  Right: 2"
    named = Keyboard(keyboard.space, keyboard.keys, names=("left", "forward"))
    assert named.prompt({}) == "Left: left  Up: forward  Right: 2"


def test_many_choices_are_typed_as_a_number() -> None:
    keyboard = Keyboard(spaces.Discrete(11))
    assert press(keyboard, "1") is None
    assert keyboard.prompt({}) == "choose 0-10, then Return: 1"
    assert press(keyboard, "0 Return") == 10
    assert press(keyboard, "1 9 BackSpace Return") == 1
    assert press(keyboard, "Return x") is None
    assert press(keyboard, "1 1 Return") is None
    assert keyboard.message == "11 is too large; 0 to 10"


def test_an_absent_entity_cannot_be_pointed_at() -> None:
    keyboard = Keyboard(SelectEntity("ball", 5))
    observation = {"ball_mask": np.array([1, 1, 0, 0, 1], np.int8)}
    assert keyboard.prompt(observation) == "choose 0-1, 4"
    assert press(keyboard, "2", observation) is None
    assert keyboard.message == "2 is not allowed; allowed: 0-1, 4"
    assert press(keyboard, "4", observation) == 4
    assert keyboard.message == ""


def test_an_action_mask_closes_choices_too() -> None:
    keyboard = Keyboard(spaces.Discrete(3))
    assert press(keyboard, "0", {"action_mask": np.array([0, 1, 1])}) is None
    assert press(keyboard, "1", {"action_mask": np.array([0, 1, 1])}) == 1


def test_every_present_entity_is_asked_in_turn() -> None:
    keyboard = Keyboard(PerEntity("snake", 4, 3))
    observation = {"snake_mask": np.array([0, 1, 0, 1])}
    assert keyboard.prompt(observation) == "snake 1: choose 0-2"
    assert press(keyboard, "2", observation) is None
    assert keyboard.prompt(observation) == "snake 3: choose 0-2"
    assert press(keyboard, "1", observation).tolist() == [0, 2, 0, 1]
    assert press(keyboard, "1 1", observation).tolist() == [0, 1, 0, 1]


def test_absent_targets_and_closed_pairs_are_refused() -> None:
    keyboard = Keyboard(PerEntity("ally", 2, 1, target="enemy", target_slots=3))
    allowed = np.ones((2, 4), bool)
    allowed[1, 3] = False
    observation = {
        "ally_mask": np.ones(2),
        "enemy_mask": np.array([1, 0, 1]),
        "action_mask": allowed,
    }
    assert keyboard.prompt(observation) == "ally 0: choose 0-1, 3"
    assert press(keyboard, "3", observation) is None
    assert keyboard.prompt(observation) == "ally 1: choose 0-1"
    assert press(keyboard, "1", observation).tolist() == [3, 1]


def test_parts_are_asked_in_turn_with_the_mask_cut_for_each() -> None:
    keyboard = Keyboard(spaces.MultiDiscrete([2, 3]))
    observation = {"action_mask": np.array([1, 1, 0, 0, 1])}
    assert press(keyboard, "1", observation) is None
    assert keyboard.prompt(observation) == "part 1: choose 2"
    assert press(keyboard, "2", observation).tolist() == [1, 2]


def test_switches_are_set_one_by_one() -> None:
    action = press(Keyboard(spaces.MultiBinary(3)), "1 0 1")
    assert action.tolist() == [1, 0, 1]
    assert action.dtype == np.int8


def test_arrows_push_to_the_bound() -> None:
    low, high = np.array([[-2, -np.inf], [3, np.inf]], np.float32)
    space = spaces.Box(low, high)
    keyboard = Keyboard(space)
    pushed = {key: press(keyboard, key).tolist() for key in ("Left", "Right", "Down", "Up")}
    assert pushed == {"Left": [-2, 0], "Right": [3, 0], "Down": [0, -1], "Up": [0, 1]}
    assert press(keyboard, "space").tolist() == [0, 0]
    assert press(keyboard, "a") is None
    assert keyboard.message == "a means nothing here; arrow keys, or space for nothing"
    assert keyboard.prompt({}) == "arrow keys"


def test_one_axis_has_no_up() -> None:
    assert press(Keyboard(spaces.Box(-1, 1, (1,))), "Up") is None


@pytest.mark.parametrize(
    "space", [spaces.Box(-1, 1, (3,)), spaces.Dict({"a": spaces.Discrete(2)}), spaces.Text(3)]
)
def test_other_spaces_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ValueError, match="action space must be Discrete, MultiDiscrete, Multi"):
        Keyboard(space)


def test_nothing_allowed_is_said() -> None:
    assert Keyboard(spaces.Discrete(2)).prompt({"action_mask": np.zeros(2)}) == "choose nothing"
