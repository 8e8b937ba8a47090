"""Small environments whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

SLOTS = 6
FEATURES = 3


class Counter(gymnasium.Env[Any, Any]):
    """An episode of `length` steps in which observation and reward count the steps taken.

    Observation before step t (t = 1, 2, ...): t - 1. Reward of step t: t.
    """

    def __init__(self, length: int, *, truncates: bool = False) -> None:
        self.observation_space = spaces.Dict(
            entities=spaces.Box(-np.inf, np.inf, (2, 1), np.float32), mask=spaces.MultiBinary(2)
        )
        self.action_space = spaces.Discrete(2)
        self.length = length
        self.truncates = truncates
        self.count = 0

    def _observe(self) -> dict[str, Any]:
        entities = np.array([[self.count], [np.nan]], np.float32)
        return {"entities": entities, "mask": np.array([1, 0], np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.count < self.length, "stepped after the end of an episode"
        self.count += 1
        over = self.count == self.length
        ends = over and not self.truncates
        info = {"score": self.count / 10} if over else {}
        return self._observe(), float(self.count), ends, over and self.truncates, info

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def set_state(self, content: dict[str, Any]) -> None:
        self.count = content["count"]


def counters(
    lengths: list[int], mode: str = "NEXT_STEP", *, truncates: bool = False
) -> SyncVectorEnv:
    """Vectorise counters with gymnasium's own class in one of its autoreset modes."""
    make = [lambda n=n: Counter(n, truncates=truncates) for n in lengths]
    return SyncVectorEnv(make, autoreset_mode=AutoresetMode[mode])


class Toy(gymnasium.Env[Any, Any]):
    """0 to 6 entities with holes; episodes of 4 steps.

    Odd episodes are truncated, even ones terminated. The reward is 1 where the action is the
    number of present entities modulo 3. Absent slots hold `pad_value`.
    """

    def __init__(self, pad_value: float = 0.0) -> None:
        self.observation_space: spaces.Dict = spaces.Dict(
            entities=spaces.Box(-np.inf, np.inf, (SLOTS, FEATURES), np.float32),
            mask=spaces.MultiBinary(SLOTS),
        )
        self.action_space: spaces.Space[Any] = spaces.Discrete(3)
        self.pad_value = pad_value
        self.episode = 0
        self.time = 0
        self.present = 0

    def _observe(self) -> dict[str, Any]:
        self.present = int(self.np_random.integers(SLOTS + 1))
        mask = np.zeros(SLOTS, np.int8)
        mask[self.np_random.permutation(SLOTS)[: self.present]] = 1
        entities = self.np_random.normal(size=(SLOTS, FEATURES)).astype(np.float32)
        return {"entities": np.where(mask[:, None] == 1, entities, self.pad_value), "mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode += 1
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        reward = float(action == self.present % 3)
        self.time += 1
        over, odd = self.time == 4, self.episode % 2 == 1
        return self._observe(), reward, over and not odd, over and odd, {}

    def get_state(self) -> dict[str, Any]:
        counters = {k: getattr(self, k) for k in ("episode", "time", "present")}
        return {"random": self.np_random.bit_generator.state, **counters}

    def set_state(self, content: dict[str, Any]) -> None:
        super().reset(seed=0)
        self.np_random.bit_generator.state = content["random"]
        for name in ("episode", "time", "present"):
            setattr(self, name, content[name])
