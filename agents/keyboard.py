"""Turn key presses into actions of any space a person can handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["KEYS", "Keyboard"]

#: Keys that mean more than a number, by task: key (as Tk names it) -> choice.
KEYS: dict[str, dict[str, int]] = {
    "Minefield": {"Left": 0, "Up": 1, "Right": 2},
    # Clockwise from north; the letters around S, so that no number pad is needed.
    "FloorIsLava": {"w": 0, "e": 1, "d": 2, "c": 3, "x": 4, "z": 5, "a": 6, "q": 7},
}
ARROWS = {"Left": (0, -1), "Right": (0, 1), "Down": (1, -1), "Up": (1, 1)}


class Keyboard:
    """Collect keys until they make an action.

    Up to ten choices take one digit each, more are typed as a number and Return. Where several
    choices make an action (every entity of a group, MultiDiscrete), they are asked for one after
    the other; absent entities are passed over. A Box of one or two numbers takes the arrow keys.

    Args:
        space: Action space of one environment.
        keys: Keys with a meaning of their own, such as ``{"Left": 0}``.
        names: What the choices are called in the prompt; none: their numbers.

    Attributes:
        message: Why the last key did nothing, or an empty string.

    Raises:
        ValueError: For a space that keys cannot serve.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        keys: Mapping[str, int] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.space = space
        self.names = names
        self.keys = dict(keys or {})
        self.message = ""
        self._typed = ""
        self._chosen: list[int] = []
        self._sizes = _sizes(space)

    def press(self, key: str, observation: Mapping[str, np.ndarray]) -> Any | None:
        """Take a key.

        Args:
            key: Its name in Tk: ``"Left"``, ``"a"``, ``"3"``, ``"Return"``.
            observation: What the environment shows now; its masks tell what is allowed.

        Returns:
            The action when it is complete, else None.
        """
        self.message = ""
        if isinstance(self.space, spaces.Box):
            return self._push(key)
        self._pass_over_absent(observation)
        choice = self._read(key)
        if choice is None:
            return None
        legal = self._legal(observation)
        if not legal[choice]:
            self.message = f"{choice} is not allowed; allowed: {_ranges(np.flatnonzero(legal))}"
            return None
        self._chosen.append(choice)
        self._pass_over_absent(observation)
        if len(self._chosen) < len(self._sizes):
            return None
        action, self._chosen = np.array(self._chosen), []
        scalar = isinstance(self.space, spaces.Discrete)
        return int(action[0]) if scalar else action.astype(self.space.dtype)

    def prompt(self, observation: Mapping[str, np.ndarray]) -> str:
        """Say which keys are expected now."""
        if isinstance(self.space, spaces.Box):
            return "arrow keys"
        self._pass_over_absent(observation)
        if self.keys:
            text = "  ".join(f"{key}: {self._name(choice)}" for key, choice in self.keys.items())
        else:
            text = f"choose {_ranges(np.flatnonzero(self._legal(observation)))}"
        if self._size > 10:
            text += f", then Return: {self._typed or '_'}"
        if len(self._sizes) > 1:
            text = f"{self._actor} {len(self._chosen)}: {text}"
        return text

    def _name(self, choice: int) -> str:
        return self.names[choice] if choice < len(self.names) else str(choice)

    @property
    def _size(self) -> int:
        """Number of choices that the next key chooses among."""
        return self._sizes[min(len(self._chosen), len(self._sizes) - 1)]

    @property
    def _actor(self) -> str:
        return self.space.group if isinstance(self.space, PerEntity) else "part"

    def _read(self, key: str) -> int | None:
        """Return the choice that a key completes, if it does."""
        if key in self.keys:
            return self.keys[key]
        if self._size <= 10:
            if key.isdigit() and int(key) < self._size:
                return int(key)
            self.message = f"{key} means nothing here"
            return None
        if key == "BackSpace":
            self._typed = self._typed[:-1]
        elif key.isdigit():
            self._typed += key
        elif key == "Return" and self._typed:
            choice, self._typed = int(self._typed), ""
            if choice < self._size:
                return choice
            self.message = f"{choice} is too large; 0 to {self._size - 1}"
        return None

    def _legal(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return which of the next choices are allowed, (n,) bool."""
        place, space = len(self._chosen), self.space
        legal = np.ones(self._size, dtype=bool)
        if isinstance(space, SelectEntity):
            legal &= np.asarray(observation[f"{space.group}_mask"]).astype(bool).reshape(-1)
        if isinstance(space, PerEntity) and space.target is not None:
            legal[space.n :] &= np.asarray(observation[f"{space.target}_mask"]).astype(bool)
        if "action_mask" in observation:
            mask = np.asarray(observation["action_mask"]).astype(bool)
            if mask.ndim > 1:
                legal &= mask[min(place, len(mask) - 1)]
            else:  # one after another, as in MultiDiscrete
                start = sum(self._sizes[:place])
                legal &= mask[start : start + self._size]
        return legal

    def _pass_over_absent(self, observation: Mapping[str, np.ndarray]) -> None:
        """Choose 0 for entities that are not there."""
        if not isinstance(self.space, PerEntity):
            return
        present = np.asarray(observation[f"{self.space.group}_mask"]).astype(bool).reshape(-1)
        while len(self._chosen) < len(present) and not present[len(self._chosen)]:
            self._chosen.append(0)

    def _push(self, key: str) -> np.ndarray | None:
        """Return a Box action: full deflection along one axis, or none of any with space."""
        assert isinstance(self.space, spaces.Box)
        action = np.zeros(self.space.shape, dtype=self.space.dtype)
        axis, sign = ARROWS.get(key, (0, 0))
        if key != "space" and (not sign or axis >= action.size):
            self.message = f"{key} means nothing here; arrow keys, or space for nothing"
            return None
        bound = (self.space.high if sign > 0 else -self.space.low).reshape(-1)[axis]
        action.reshape(-1)[axis] = sign * (bound if np.isfinite(bound) else 1.0)
        return action


def _sizes(space: spaces.Space[Any]) -> list[int]:
    """Return how many choices each part of an action has."""
    match space:
        case spaces.Discrete() if space.start == 0:
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(n) for n in space.nvec.reshape(-1)]
        case spaces.MultiBinary() if isinstance(space.n, int):
            return [2] * space.n
        case spaces.Box() if int(np.prod(space.shape)) in (1, 2):
            return []
    raise ValueError(
        "action space must be Discrete, MultiDiscrete, MultiBinary or a Box of one or two numbers "
        f"to be played by keyboard, got {space}"
    )


def _ranges(numbers: np.ndarray) -> str:
    """Write 0, 1, 2, 5 as 0-2, 5."""
    pieces = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if numbers.size else []
    spans = [str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in pieces]
    return ", ".join(spans) or "nothing"
