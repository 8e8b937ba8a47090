"""A single environment that delivers given observations, for tests of wrappers."""

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env


def check_wrapped(env: gymnasium.Env[Any, Any]) -> None:
    """Run gymnasium's checker, which says first that it would rather see no wrapper."""
    with pytest.warns(UserWarning, match="most likely has a wrapper applied to it"):
        check_env(env, skip_render_check=True)


class Spaced(gymnasium.Env[Any, Any]):
    """Deliver `observations` one by one; the last step truncates."""

    def __init__(
        self,
        space: spaces.Space[Any],
        observations: Sequence[Any],
        info: dict[str, Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
    ) -> None:
        self.observation_space = space
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.observations = list(observations)
        self.info = {} if info is None else info
        self.time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return copy.deepcopy(self.observations[0]), dict(self.info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        last = self.time >= len(self.observations) - 1
        return copy.deepcopy(self.observations[self.time]), 1.0, False, last, dict(self.info)
