"""Fill a rollout: the policy acts, the environments answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from entity_encoder.agents.cuda_graphs import Captured
from entity_encoder.agents.environments import Environments
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
        envs: The environments, reset.
        steps: Steps of every environment per rollout.
        generator: Source of the randomness of actions, on the training device.
        captured: Whether choosing actions is replayed as a CUDA graph, see `Captured`.
        precision: Returns the context in which the policy computes.

    Attributes:
        state: (E, H) memory of a recurrent policy, or None.
        timing: Of the last rollout.
        threads: Threads of torch that may share the inference of one step.
    """

    def __init__(
        self,
        policy: EntityPolicy,
        envs: Environments,
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
        self.state = policy.initial_state(envs.num_envs)
        self.timing = Timing()
        self.threads = 1
        self.precision = precision
        self._captured = Captured(self._choose, generators=[generator]) if captured else None
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
        for t in range(self.steps):
            start = time.perf_counter()
            try:
                choice = self._act()
            except ValueError as error:
                raise ValueError(f"in step {t} of the rollout: {error}") from error
            if self._rollout is None:
                self._rollout = Rollout(self.steps, self.envs.observation, choice)
            if t == 0:
                self._rollout.begin(self.state)
            self._rollout.see(t, self.envs)
            middle = time.perf_counter()
            try:
                step = self.envs.step(choice.env_action)
            except ValueError as error:
                raise ValueError(f"in step {t} of the rollout: {error}") from error
            self._rollout.record(t, choice, step)
            self.state = choice.state
            self.timing.inference += middle - start
            self.timing.environment += time.perf_counter() - middle
        assert self._rollout is not None
        self._rollout.finish(self.envs, self.state)
        start = time.perf_counter()
        self._bootstrap(self._rollout)
        self.timing.inference += time.perf_counter() - start
        return self._rollout

    def _act(self) -> Choice:
        """Let the policy choose an action everywhere."""
        inputs: dict[str, Any] = {
            "observation": self.envs.observation,
            "begins": self.envs.begins,
        }
        if self.envs.mode is AutoresetMode.NEXT_STEP:  # some rows may only reset
            inputs["active"] = ~self.envs.ended
        if self.state is not None:
            inputs["state"] = self.state
        outputs = self._choose(inputs) if self._captured is None else self._captured(inputs)
        return Choice(**{"state": None, **outputs})

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
