"""One iteration of training: a rollout, an update, and what there is to say about them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from entity_encoder.agents.collect import count_entities
from entity_encoder.agents.distributed import Ranks
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.report import (
    episode_metrics,
    plain_numbers,
    return_by_entities,
    rollout_metrics,
    speed_metrics,
)
from entity_encoder.agents.rollout import Batch, Rollout

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Iteration", "iterate", "prepare", "update_statistics"]


@dataclass(frozen=True)
class Iteration:
    """What one iteration did.

    Attributes:
        metrics: Numbers by tag.
        steps: Environment steps learned from, over all processes.
        entities: Entities present in their observations.
    """

    metrics: dict[str, float]
    steps: int
    entities: int


def iterate(agent: PPO) -> Iteration:
    """Collect a rollout and learn from it; the agent's counters move on."""
    begin = time.perf_counter()
    coefficients = agent.coefficients()

    # --- collect: the policy and every statistic stay as they are -----------------------------
    try:
        rollout = agent.collector.collect()
    except ValueError as error:
        error.add_note(f"after {agent.steps} environment steps")
        raise
    collected = time.perf_counter()

    # --- learn --------------------------------------------------------------------------------
    count = count_entities(agent.policy.schema, rollout.observation)  # (T, E)
    batch = prepare(agent, rollout, count)
    metrics: dict[str, Any] = agent.updater.update(batch, coefficients)

    # --- what was seen enters the statistics only now, when the update is over ----------------
    update_statistics(agent.policy, agent.ranks, rollout.observation, rollout.valid)

    # --- count and report: the first wait for the device --------------------------------------
    totals = torch.stack([rollout.valid.sum(), (count * rollout.valid).sum()])
    steps, entities = agent.ranks.total(totals).tolist()
    end = time.perf_counter()
    agent.steps += steps
    agent.iteration += 1
    agent.seconds += end - begin
    seconds = {
        "environment": agent.collector.timing.environment,
        "inference": agent.collector.timing.inference,
        "update": end - collected,
        "total": end - begin,
    }
    metrics |= rollout_metrics(batch)
    ended = agent.episodes.update(rollout, count)
    metrics |= episode_metrics(ended) | return_by_entities(ended, agent.policy.schema.slots)
    metrics |= speed_metrics(seconds, steps=steps, entities=entities)
    metrics["optimiser/learning_rate"] = coefficients.learning_rate
    metrics["optimiser/clip_range"] = coefficients.clip_range
    metrics["optimiser/entropy_coefficient"] = coefficients.entropy
    return Iteration(plain_numbers(metrics), steps, entities)


def prepare(agent: PPO, rollout: Rollout, count: Tensor) -> Batch:
    """Scale rewards and estimate advantages.

    Args:
        agent: Whose reward scale sees the rollout.
        rollout: A finished one.
        count: (T, E) present entities.
    """
    factor: Tensor | float = 1.0
    if agent.config.normalise_rewards:
        ended = rollout.terminated | rollout.truncated
        agent.ranks.update_statistics(
            [agent.reward_scale],
            lambda: agent.reward_scale.update(rollout.reward, ended, rollout.valid),
        )
        factor = agent.reward_scale.factor
    return rollout.batch(
        gamma=agent.config.gamma,
        gae_lambda=agent.config.gae_lambda,
        reward_scale=factor,
        count=count,
    )


def update_statistics(
    policy: EntityPolicy,
    ranks: Ranks,
    observation: Mapping[str, Tensor],
    valid: Tensor | None = None,
) -> None:
    """Let the policy's normalisation see observations, of all processes.

    Args:
        policy: The policy.
        ranks: The processes that learn together.
        observation: Leaves (..., ...) with any leading dimensions.
        valid: Over the leading dimensions, which observations count; None: all.
    """
    norms = [
        norm
        for encoder in policy.encoders
        for norm in (*encoder.group_norms, *encoder.global_norms)
    ]
    ranks.update_statistics(norms, lambda: policy.update_statistics(observation, valid))
