"""The memory of one rollout: every tensor allocated once, on the training device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from entity_encoder.agents.advantages import gae
from entity_encoder.agents.environments import Environments, Final, Step
from entity_encoder.agents.policy import Choice
from entity_encoder.agents.trees import Tree, allocate, flatten_time, select, write

__all__ = ["Batch", "Rollout"]

EVERYWHERE = slice(None)


@dataclass
class Batch:
    """A rollout as independent samples, B = T * E rows in the order of time.

    Attributes:
        observation: Leaves (B, ...).
        action: Raw actions, leaves (B, ...).
        log_prob: (B,), of the policy that acted.
        value: (B,), V(s_t) of the policy that acted.
        advantage: (B,).
        target: (B,), what the value function shall predict.
        valid: (B,) bool, rows to learn from.
        begins: (B,) bool, first observations of episodes.
        count: (B,) int64, present entities.
        state: (E, H) memory of a recurrent policy before the first step, or None.
        shape: (T, E).
    """

    observation: dict[str, Tensor]
    action: Tree
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    valid: Tensor
    begins: Tensor
    count: Tensor
    state: Tensor | None
    shape: tuple[int, int]

    @property
    def recurrent(self) -> bool:
        """Whether the steps of an environment belong together."""
        return self.state is not None


class Rollout:
    """T steps of E environments.

    Args:
        steps: T.
        num_envs: E.
        observation: An observation to take shapes from, leaves (n, ...).
        choice: What the policy returned for it.

    Attributes:
        observation: Leaves (T, E, ...), what the policy saw.
        action: Leaves (T, E, ...), the raw actions.
        log_prob, value, reward: (T, E) float32.
        terminated, truncated, valid, begins: (T, E) bool.
        outcomes: `score` and `success`, (T, E) float32, NaN where nothing was reported.
        next_value: (T, E), V of the true successor, filled by `bootstrap`.
        state: (E, H) memory of a recurrent policy before the first step, or None.
        last: What the policy sees after the last step, leaves (E, ...).
    """

    def __init__(
        self, steps: int, num_envs: int, observation: dict[str, Tensor], choice: Choice
    ) -> None:
        self.steps = steps
        shape = (steps, num_envs)
        self.observation = allocate(observation, *shape)
        self.action = allocate(choice.action, *shape)
        device = choice.value.device
        self.log_prob, self.value = torch.zeros(2, *shape, device=device).unbind()
        self.reward, self.next_value = torch.zeros(2, *shape, device=device).unbind()
        flags = torch.zeros(4, *shape, dtype=torch.bool, device=device)
        self.terminated, self.truncated, self.valid, self.begins = flags.unbind()
        self.outcomes: dict[str, Tensor] = {}
        self.state: Tensor | None = None
        self.last: dict[str, Tensor] = observation
        self._last_state: Tensor | None = None
        self._finals: list[tuple[int, Tensor, dict[str, Tensor], Tensor | None]] = []
        self._all_finals: dict[str, Tensor] | None = None

    def begin(self, state: Tensor | None) -> None:
        """Forget the last rollout; remember the recurrent memory that this one starts from."""
        self._finals = []
        self.state = state
        for values in self.outcomes.values():
            values.fill_(torch.nan)

    def see(self, t: int, envs: Environments, part: slice = EVERYWHERE) -> None:
        """Store what the policy sees in step t, before the environment may write over it.

        Args:
            t: The step.
            envs: All environments, or a part of them.
            part: Their columns.
        """
        write(self.observation, (t, part), envs.observation)
        self.begins[t, part] = envs.begins

    def record(self, t: int, choice: Choice, step: Step, part: slice = EVERYWHERE) -> None:
        """Store what the policy did in step t and what came of it."""
        write(self.action, (t, part), choice.action)
        self.log_prob[t, part] = choice.log_prob
        self.value[t, part] = choice.value
        self.reward[t, part] = step.reward
        self.terminated[t, part] = step.terminated
        self.truncated[t, part] = step.truncated
        self.valid[t, part] = step.valid
        for name, values in step.outcomes.items():
            if name not in self.outcomes:
                self.outcomes[name] = torch.full_like(self.reward, torch.nan)
            self.outcomes[name][t, part] = values
        if step.final is not None:
            self._keep_final(t, step.final, choice.state, part)

    def _keep_final(self, t: int, final: Final, state: Tensor | None, part: slice) -> None:
        rows, observation = final.rows, final.observation
        if rows is None and state is not None:  # memory is chosen by row, so wait for the device
            rows = self.truncated[t, part].nonzero().flatten()
            observation = select(observation, rows)
        if rows is not None:
            memory = None if state is None else state.index_select(0, rows)
            self._finals.append((t, rows + (part.start or 0), observation, memory))
            return
        # Which rows matter is known on the device only: keep all, choose once per rollout.
        if self._all_finals is None:
            self._all_finals = allocate(observation, *self.reward.shape)
        write(self._all_finals, (t, part), observation)

    def finish(self, last: dict[str, Tensor], state: Tensor | None) -> None:
        """Take the observation after the last step, leaves (E, ...), and the memory then."""
        self.last = last
        self._last_state = state

    def finals(self) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """Return everything whose value closes a recursion: last and final observations.

        Returns:
            index: (k,) int64 into the flat (T, E) rows whose successor each is; the first E are
                the observations after the last step.
            observation: Leaves (k, ...).
            state: (k, H) recurrent memory, or None.
        """
        num_envs = self.reward.shape[1]
        device = self.reward.device
        index = [torch.arange(num_envs, device=device) + (self.steps - 1) * num_envs]
        batches = [self.last]
        states = [] if self._last_state is None else [self._last_state]
        for t, rows, observation, memory in self._finals:
            index.append(rows + t * num_envs)
            batches.append(observation)
            if memory is not None:
                states.append(memory)
        if self._all_finals is not None:
            where = self.truncated.flatten().nonzero().flatten()
            index.append(where)
            batches.append(select(flatten_time(self._all_finals), where))
        joined = {key: torch.cat([b[key] for b in batches]) for key in self.last}
        return torch.cat(index), joined, torch.cat(states) if states else None

    def bootstrap(self, index: Tensor, values: Tensor) -> None:
        """Fill in V of the true successors.

        Args:
            index: From `finals`.
            values: (k,), the values of those observations.
        """
        self.next_value[:-1] = self.value[1:]
        flat, last = self.next_value.view(-1), self.reward.shape[1]
        flat[index[:last]] = values[:last].to(flat.dtype)
        # A truncated episode's final observation wins over the next one's first.
        flat[index[last:]] = values[last:].to(flat.dtype)

    def batch(
        self, *, gamma: float, gae_lambda: float, reward_scale: Tensor | float, count: Tensor
    ) -> Batch:
        """Estimate advantages and join time and environments.

        Args:
            gamma: Discount per step.
            gae_lambda: Decay of the advantage estimate.
            reward_scale: What rewards are multiplied by.
            count: (T, E) present entities.
        """
        advantage = gae(
            self.reward * reward_scale,
            self.value,
            self.next_value,
            self.terminated,
            self.truncated,
            valid=self.valid,
            gamma=gamma,
            gae_lambda=gae_lambda,
        )
        return Batch(
            observation=flatten_time(self.observation),
            action=flatten_time(self.action),
            log_prob=self.log_prob.flatten(),
            value=self.value.flatten(),
            advantage=advantage.flatten(),
            target=(advantage + self.value).flatten(),
            valid=self.valid.flatten(),
            begins=self.begins.flatten(),
            count=count.flatten(),
            state=self.state,
            shape=(self.steps, self.reward.shape[1]),
        )
