"""What all trainers have in common, and how their time is split."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.ppo.task import Loudest

__all__ = ["Meter", "Setting", "Trainer", "make_task"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The sizes and coefficients of every trainer."""

    num_envs: int = 64
    steps: int = 128
    epochs: int = 4
    minibatches: int = 4
    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2
    d_ff: int = 128
    learning_rate: float = 3e-4
    adam_epsilon: float = 1e-5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    value_weight: float = 0.5  # of the mean squared error
    entropy_weight: float = 0.01
    max_grad_norm: float = 0.5
    normalise_advantages: bool = True
    device: str = "cpu"
    threads: int = 1
    seed: int = 1

    @property
    def rollout(self) -> int:
        """Samples of one rollout."""
        return self.num_envs * self.steps

    @property
    def minibatch(self) -> int:
        """Samples behind one gradient step."""
        return self.rollout // self.minibatches


@dataclass
class Meter:
    """CPU seconds of this process, all threads, spent below the functions that it wraps."""

    spent: dict[str, float] = field(default_factory=dict)

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Let a method's time be added to the entry `name`."""
        setattr(owner, method, self.wrap(getattr(owner, method), name))

    def wrap(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return the function with its time added to the entry `name`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - begin

        return timed


class Trainer(Protocol):
    """One contender.

    `meter` holds the entries "environment", the steps of the task itself, and "update", everything
    between a rollout and the next one. What is left of the whole is inference: choosing actions
    and storing what happened.
    """

    meter: Meter

    def train(self, iterations: int) -> None:
        """Go on for some rollouts and updates."""


def make_task(setting: Setting, meter: Meter, **options: Any) -> Loudest:
    """Make the environments, with their steps on the meter."""
    envs = Loudest(setting.num_envs, **options)
    meter.watch(envs, "step", "environment")
    return envs
