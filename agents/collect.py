"""Fill a rollout: the policy acts, the environments answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from entity_encoder.agents.cuda_graphs import Captured
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.halves import Halves, parts_of
from entity_encoder.agents.machine import using_threads
from entity_encoder.agents.policy import Choice, EntityPolicy
from entity_encoder.agents.rollout import Rollout
from entity_encoder.observation import as_mask
from entity_encoder.schema import EntitySchema

__all__ = ["Collector", "Timing", "count_entities"]

MANY_ENTITIES = 2048  # below about a thousand, two threads are no faster than one


@dataclass
class Timing:
    """Seconds spent in the last rollout."""

    environment: float = 0.0
    inference: float = 0.0


class Collector:
    """Roll a policy out in environments.

    Args:
        policy: The policy.
        envs: The environments, reset; or two halves of them, which are stepped in turn.
        steps: Steps of every environment per rollout.
        generator: Source of the randomness of actions, on the training device.
        captured: Whether choosing actions is replayed as a CUDA graph, see `Captured`.
        precision: Returns the context in which the policy computes.

    Attributes:
        timing: Of the last rollout.
        threads: Threads of torch that may share the inference of one step.
    """

    def __init__(
        self,
        policy: EntityPolicy,
        envs: Environments | Halves,
        steps: int,
        generator: torch.Generator,
        *,
        captured: bool = False,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.policy = policy
        self.envs = envs
        self.steps = steps
        self.generator = generator
        self._parts = parts_of(envs)
        self.state = policy.initial_state(envs.num_envs)
        self.timing = Timing()
        self.threads = 1
        self.precision = precision
        self._calls: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
            Captured(self._choose, generators=[generator]) if captured else self._choose
            for _ in self._parts
        ]
        self._rollout: Rollout | None = None

    def collect(self) -> Rollout:
        """Take `steps` steps, then value what lies beyond the end of each piece of episode.

        Raises:
            ValueError: When an observation, a reward or an action does not fit, naming the step.
        """
        entities = count_entities(self.policy.schema, self.envs.observation)
        many = self.threads > 1 and int(entities.sum()) >= MANY_ENTITIES
        with (
            torch.no_grad(),
            self.policy.trusting(),
            using_threads(self.threads if many else 1),
        ):
            return self._collect()

    def _collect(self) -> Rollout:
        self.timing = Timing()
        begins_with = self.state
        pending: dict[int, Choice] = {}
        for t in range(self.steps):
            for number, (rows, envs) in enumerate(self._parts):
                if number in pending:
                    self._finish_step(t - 1, rows, envs, pending[number])
                pending[number] = self._begin_step(t, number, rows, envs, begins_with)
        for number, (rows, envs) in enumerate(self._parts):
            self._finish_step(self.steps - 1, rows, envs, pending[number])
        assert self._rollout is not None
        self._rollout.finish(self.envs.observation, self.state)
        start = time.perf_counter()
        self._bootstrap(self._rollout)
        self.timing.inference += time.perf_counter() - start
        return self._rollout

    def _begin_step(
        self, t: int, number: int, rows: slice, envs: Environments, begins_with: Tensor | None
    ) -> Choice:
        """Choose actions for a part of the environments and let it begin the step."""
        start = time.perf_counter()
        with _in_step(t):
            choice = self._act(number, envs)
        if self._rollout is None:
            self._rollout = Rollout(self.steps, self.envs.num_envs, envs.observation, choice)
        if t == 0 and number == 0:
            self._rollout.begin(begins_with)
        self._rollout.see(t, envs, rows)
        middle = time.perf_counter()
        with _in_step(t):
            envs.send(choice.env_action)
        self.timing.inference += middle - start
        self.timing.environment += time.perf_counter() - middle
        return choice

    def _finish_step(self, t: int, rows: slice, envs: Environments, choice: Choice) -> None:
        """Wait for a part of the environments and store what happened."""
        assert self._rollout is not None
        start = time.perf_counter()
        with _in_step(t):
            step = envs.receive()
        self._rollout.record(t, choice, step, rows)
        self.timing.environment += time.perf_counter() - start

    @property
    def state(self) -> Tensor | None:
        """Memory of a recurrent policy, (E, H), or None."""
        states = [state for state in self._states if state is not None]
        return torch.cat(states) if states else None

    @state.setter
    def state(self, state: Tensor | None) -> None:
        self._states = [None if state is None else state[rows] for rows, _ in self._parts]

    def _act(self, number: int, envs: Environments) -> Choice:
        """Let the policy choose an action in a part of the environments."""
        inputs: dict[str, Any] = {"observation": envs.observation, "begins": envs.begins}
        if envs.mode is AutoresetMode.NEXT_STEP:  # some rows may only reset
            inputs["active"] = ~envs.ended
        state = self._states[number]
        if state is not None:
            inputs["state"] = state
        outputs = self._calls[number](inputs)
        choice = Choice(**{"state": None, **outputs})
        self._states[number] = choice.state
        return choice

    def _choose(self, inputs: dict[str, Any]) -> dict[str, Any]:
        with self.precision():
            choice = self.policy.act(**inputs, generator=self.generator)
        names = ("action", "env_action", "log_prob", "value", "state")
        return {name: x for name in names if (x := getattr(choice, name)) is not None}

    def _bootstrap(self, rollout: Rollout) -> None:
        """Value all final and last observations in one pass."""
        index, observation, state = rollout.finals()
        begins = None
        if state is not None:
            begins = torch.zeros(len(index), dtype=torch.bool, device=index.device)
            begins[: self.envs.num_envs] = self.envs.begins
        with self.precision():
            values = self.policy.value(observation, state=state, begins=begins)
        rollout.bootstrap(index, values)


@contextlib.contextmanager
def _in_step(t: int) -> Iterator[None]:
    """Say in which step bad input was found."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"in step {t} of the rollout: {error}") from error


def count_entities(schema: EntitySchema, observation: dict[str, Tensor]) -> Tensor:
    """Return how many entities are present, over all groups: (...) int64."""
    total: Tensor | None = None
    for group in schema.groups:
        if group.mask_key is not None:
            mask = as_mask(observation[group.mask_key], check=False)
            if mask.dim() == observation[group.name].dim():  # (..., slots, 1)
                mask = mask.squeeze(-1)
        else:
            assert group.presence is not None
            mask = observation[group.name][..., group.features.index(group.presence)] > 0.5
        total = mask.sum(-1) if total is None else total + mask.sum(-1)
    assert total is not None
    return total
