"""The policy: one pass of the encoder serves the action distribution and the value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder import EntityEncoder, EntityEncoding, EntitySchema
from entity_encoder.agents.memory import Memory
from entity_encoder.agents.trees import Tree
from entity_encoder.distributions import ActionDistribution
from entity_encoder.heads import PooledHead, make_action_head

__all__ = ["Choice", "EntityPolicy", "PolicyOutput"]


@dataclass
class PolicyOutput:
    """What the policy thinks of a batch of observations.

    Attributes:
        distribution: Over actions, one per row.
        value: (...), estimate of the discounted return from here.
        encoding: What the actor's encoder made of the entities.
        state: (E, H), memory of a recurrent policy afterwards, or None.
    """

    distribution: ActionDistribution
    value: Tensor
    encoding: EntityEncoding
    state: Tensor | None = None


@dataclass
class Choice:
    """What the policy did.

    Attributes:
        action: Raw action, leaves (E, ...): what learning stores and asks the probability of.
        env_action: What the environment shall receive, clipped or squashed into its bounds.
        log_prob: (E,).
        value: (E,).
        state: (E, H), memory afterwards, or None.
    """

    action: Tree
    env_action: Tree
    log_prob: Tensor
    value: Tensor
    state: Tensor | None


class EntityPolicy(nn.Module):
    """Actor and critic over a set of entities.

    Args:
        space: Observation space of one environment, or its schema.
        action_space: Action space of one environment.
        hidden: Widths of hidden layers in the value head and the action heads.
        separate_critic: Whether the value has an encoder of its own; otherwise it shares the
            actor's, and its gradients.
        recurrent: Width of a GRU after pooling, 0 for none.
        squash: Whether Box actions are squashed into their bounds instead of clipped.
        encoder: Further arguments of `EntityEncoder`.

    Attributes:
        encoder: The actor's encoder.
        critic: The value's, which may be the same module.
        state_size: Width H of the memory, 0 for none.

    Raises:
        ValueError: For spaces that cannot be served.
    """

    def __init__(
        self,
        space: spaces.Space[Any] | EntitySchema,
        action_space: spaces.Space[Any],
        *,
        hidden: Sequence[int] = (),
        separate_critic: bool = False,
        recurrent: int = 0,
        squash: bool = False,
        **encoder: Any,
    ) -> None:
        super().__init__()
        self.action_space = action_space
        self.encoder = EntityEncoder(space, **encoder)
        self.schema = self.encoder.schema
        self.own_schema = False  # True: it was given to training, whatever an environment declares
        self.separate_critic = separate_critic
        if separate_critic:
            self.critic_encoder = EntityEncoder(self.schema, **encoder)
        width = self.encoder.output_dim
        # The critic needs a pass of its own when it has other weights, or sees more.
        self.two_passes = separate_critic or self.schema.has_critic_only
        self.memory = Memory(width, recurrent) if recurrent else None
        self.critic_memory = Memory(width, recurrent) if recurrent and self.two_passes else None
        self.action_head = make_action_head(
            action_space, self.encoder, hidden=hidden, squash=squash
        )
        self.value_head = PooledHead(width, 1, hidden=hidden, gain=1.0)

    @property
    def critic(self) -> EntityEncoder:
        """The encoder that serves the value."""
        return self.critic_encoder if self.separate_critic else self.encoder

    @property
    def encoders(self) -> list[EntityEncoder]:
        """The encoders, each once."""
        return [self.encoder, self.critic_encoder] if self.separate_critic else [self.encoder]

    @property
    def memories(self) -> list[Memory]:
        """The recurrent memories: none, the one, or the actor's and the critic's."""
        return [m for m in (self.memory, self.critic_memory) if m is not None]

    @property
    def state_size(self) -> int:
        """Width H of all memory together, 0 for none."""
        return sum(memory.size for memory in self.memories)

    def initial_state(self, num_envs: int) -> Tensor | None:
        """Return an empty memory (E, H), or None without one."""
        parts = [memory.initial(num_envs) for memory in self.memories]
        return torch.cat(parts, dim=1) if parts else None

    def forward(
        self,
        observation: Mapping[str, Any],
        *,
        state: Tensor | None = None,
        begins: Tensor | None = None,
        active: Tensor | None = None,
        return_attention: bool = False,
    ) -> PolicyOutput:
        """Return the action distribution and the value.

        Args:
            observation: Leaves (E, ...), or (T, E, ...) for sequences of a recurrent policy.
            state: (E, H) memory before; None starts with an empty one.
            begins: (E,) or (T, E) bool, rows that begin an episode, where memory is emptied.
            active: Rows that act, shaped like the leading dimensions; None: all. In the others
                an absence of legal actions is no error.
            return_attention: Whether `encoding` holds attention maps; all else stays bit-equal.
        """
        encoding = self.encoder(observation, return_attention=return_attention)
        first, second = self._split(state)
        encoding.pooled, first = _remember(self.memory, encoding.pooled, first, begins)
        pooled = encoding.pooled
        if self.two_passes:
            pooled = self.critic(observation, critic=True).pooled
            pooled, second = _remember(self.critic_memory, pooled, second, begins)
        distribution = self.action_head(encoding, observation, active=active)
        states = [part for part in (first, second) if part is not None]
        memory = torch.cat(states, dim=-1) if states else None
        return PolicyOutput(distribution, self._value(pooled), encoding, memory)

    def value(
        self,
        observation: Mapping[str, Any],
        *,
        state: Tensor | None = None,
        begins: Tensor | None = None,
    ) -> Tensor:
        """Return the value alone, (...); no legal action is needed."""
        first, second = self._split(state)
        if self.two_passes:
            pooled = self.critic(observation, critic=True).pooled
            pooled, _ = _remember(self.critic_memory, pooled, second, begins)
        else:
            pooled, _ = _remember(self.memory, self.encoder(observation).pooled, first, begins)
        return self._value(pooled)

    def _value(self, pooled: Tensor) -> Tensor:
        return self.value_head(pooled).squeeze(-1).float()

    def _split(self, state: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the actor's and the critic's part of a memory (E, H)."""
        if state is None or self.critic_memory is None:
            return state, None
        first, second = state.chunk(2, dim=-1)
        return first, second

    @torch.no_grad()
    def act(
        self,
        observation: Mapping[str, Any],
        *,
        state: Tensor | None = None,
        begins: Tensor | None = None,
        active: Tensor | None = None,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> Choice:
        """Choose an action for every row; see `forward` for the arguments."""
        output = self(observation, state=state, begins=begins, active=active)
        distribution = output.distribution
        action = distribution.mode() if deterministic else distribution.sample(generator)
        return Choice(
            action=action,
            env_action=distribution.to_env(action),
            log_prob=distribution.log_prob(action),
            value=output.value,
            state=output.state,
        )

    @contextlib.contextmanager
    def trusting(self) -> Iterator[None]:
        """Let the encoders skip looking at values that were checked when they came in."""
        before = [encoder.check for encoder in self.encoders]
        for encoder in self.encoders:
            encoder.check = False
        try:
            yield
        finally:
            for encoder, check in zip(self.encoders, before, strict=True):
                encoder.check = check

    @torch.no_grad()
    def update_statistics(
        self, observation: Mapping[str, Any], valid: Tensor | None = None
    ) -> None:
        """Let the encoders' running normalisation see observations."""
        for encoder in self.encoders:
            encoder.update_statistics(observation, valid)


def _remember(
    memory: Memory | None, pooled: Tensor, state: Tensor | None, begins: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    return (pooled, None) if memory is None else memory(pooled, state, begins)
