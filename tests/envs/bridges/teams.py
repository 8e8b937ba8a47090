"""A parallel environment whose agents come and go by a timetable, in PettingZoo's form."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.schema import EntitySchema

SPACE = spaces.Dict(
    {
        "unit": spaces.Box(0, 99, (2, 1), np.float32),
        "unit_mask": spaces.MultiBinary(2),
        "clock": spaces.Box(1, 99, (1,), np.float32),
    }
)


class Timetable:
    """Agent `a` is there from `come[a]` on and acts for the last time at `go[a]`.

    The clock counts steps of the episode from 1. Rewards are 100 times the agent's number plus the
    clock before the step. What the agents did is kept in `actions`.
    """

    entity_schema = EntitySchema.from_space(SPACE, positions={"unit": ("f0",)})

    def __init__(
        self, times: Mapping[str, tuple[int, int]], truncates: bool = False, choices: int = 3
    ) -> None:
        self.times = dict(times)
        self.truncates = truncates
        self.choices = choices
        self.possible_agents = list(times)
        self.agents: list[str] = []
        self.actions: list[dict[str, Any]] = []
        self.seeds: list[int | None] = []
        self.closed = False
        self.render_mode = "rgb_array"
        self.clock = 1

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return SPACE

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(self.choices)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.clock = 1
        self.seeds.append(seed)
        self.agents = [a for a, (come, _) in self.times.items() if come <= 1]
        return self._see(self.agents), {a: self._info() for a in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        assert set(actions) == set(self.agents)
        self.actions.append(actions)
        before = self.agents
        numbers = {a: i for i, a in enumerate(self.possible_agents)}
        rewards = {a: 100.0 * numbers[a] + self.clock for a in before}
        leave = {a: self.times[a][1] == self.clock for a in before}
        self.clock += 1
        come = [a for a, (first, _) in self.times.items() if first == self.clock]
        self.agents = [a for a in before if not leave[a]] + come
        nobody = dict.fromkeys(before, False)
        ends, cuts = (nobody, leave) if self.truncates else (leave, nobody)
        everybody = [*before, *come]
        infos = {a: self._info() for a in everybody}
        return self._see(everybody), rewards, ends, cuts, infos

    def render(self) -> np.ndarray:
        return np.full((2, 3, 3), self.clock, np.uint8)

    def close(self) -> None:
        self.closed = True

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 0, self.clock % 2], np.int8)}

    def _see(self, agents: list[str]) -> dict[str, Any]:
        return {
            a: {
                "unit": np.array([[7], [self.clock]], np.float32),
                "unit_mask": np.array([1, 1], np.int8),
                "clock": np.array([self.clock], np.float32),
            }
            for a in agents
        }
