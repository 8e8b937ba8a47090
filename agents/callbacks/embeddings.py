"""Show how the policy arranges entities: its vectors in TensorBoard's projector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entity_encoder.agents.callbacks.clock import Clock

if TYPE_CHECKING:
    from entity_encoder.agents.policy import EntityPolicy
    from entity_encoder.agents.ppo import PPO

__all__ = ["Embeddings", "entity_table"]


class Embeddings:
    """Write the encoded entities of all environments for the projector, labelled by kind.

    Args:
        every: Environment steps between two times, each replacing the one before; 0 writes only
            those of the last policy.
        most: At most this many entities, drawn evenly from all.
    """

    def __init__(self, every: int = 0, *, most: int = 2000) -> None:
        self.most = most
        self._clock = Clock("every", every)

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Write when it is time."""
        if self._clock.is_due(agent):
            self.finish(agent)

    def finish(self, agent: PPO) -> None:
        """Write those of the policy that training ended with."""
        if agent.monitor.enabled:
            vectors, labels = entity_table(agent.policy, agent.envs.observation, most=self.most)
            agent.monitor.embedding("entities", vectors, labels, agent.steps)


@torch.no_grad()
def entity_table(
    policy: EntityPolicy, observation: Mapping[str, Tensor], *, most: int
) -> tuple[Tensor, dict[str, list[str]]]:
    """Return the vectors of present entities, (K, d_model), and what is known of each.

    Args:
        policy: Whose encoder is asked.
        observation: Leaves (E, ...).
        most: K is at most this; of more, every so many-th is taken.

    Returns:
        The vectors, and columns of K texts: kind, environment, slot, and the first features.
    """
    encoding = policy.encoder(observation)
    vectors, labels = [], []
    for group in policy.schema.groups:
        entities, mask = encoding.group(group.name)
        vectors.append(entities[mask])
        features = observation[group.name][mask].float().cpu()
        known = zip(torch.nonzero(mask).tolist(), features.tolist(), strict=True)
        for (env, slot), row in known:
            pairs = zip(group.features, row, strict=True)
            shown = ", ".join(f"{name} {value:.3g}" for name, value in pairs)
            labels.append((group.name, str(env), str(slot), shown))
    joined = torch.cat(vectors)
    step = max(1, -(-len(joined) // most))
    columns = zip(*labels[::step], strict=True) if labels else [()] * 4
    names = ("kind", "environment", "slot", "features")
    return joined[::step], {k: list(v) for k, v in zip(names, columns, strict=True)}
