"""Put the numbers of one iteration together under the tags that are documented."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entity_encoder.agents.episodes import Episode, mean_of
from entity_encoder.agents.monitor.tags import entity_count_tag
from entity_encoder.agents.rollout import Batch

__all__ = [
    "episode_metrics",
    "plain_numbers",
    "return_by_entities",
    "rollout_metrics",
    "speed_metrics",
]

COUNT_RANGES = 8  # at most this many charts of the return by entity count
PHASES = ("environment", "inference", "update")


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """Summarise the episodes that ended in one iteration; None where there is nothing to tell."""
    if not episodes:
        return {"episode/ended": 0.0}
    totals = np.array([episode.total for episode in episodes])
    values = {
        "episode/return": float(totals.mean()),
        "episode/return_sd": float(totals.std()),
        "episode/length": mean_of(episodes, "length"),
        "episode/score": mean_of(episodes, "score"),
        "episode/success": mean_of(episodes, "success"),
        "episode/ended": float(len(episodes)),
    }
    return {tag: None if math.isnan(value) else value for tag, value in values.items()}


def return_by_entities(episodes: Sequence[Episode], slots: int) -> dict[str, float]:
    """Average returns by how many entities an episode began with, in ranges that never change.

    Args:
        episodes: Those that ended in one iteration.
        slots: The most entities there can be.
    """
    width = -(-(slots + 1) // COUNT_RANGES)
    totals: dict[int, list[float]] = {}
    for episode in episodes:
        totals.setdefault(episode.entities // width, []).append(episode.total)
    return {
        entity_count_tag(place * width, place * width + width - 1): float(np.mean(found))
        for place, found in sorted(totals.items())
    }


def rollout_metrics(batch: Batch) -> dict[str, Tensor]:
    """Judge the critic and count entities, over the valid rows of a rollout."""
    target, value = batch.target[batch.valid], batch.value[batch.valid]
    spread = target.var(correction=0)
    # 1 - var(R - V) / var(R); a return that never varies explains nothing
    explained = 1 - (target - value).var(correction=0) / spread
    return {
        "value/explained_variance": torch.where(spread > 0, explained, torch.nan),
        "value/mean": value.mean(),
        "entities/present": batch.count[batch.valid].float().mean(),
    }


def speed_metrics(seconds: Mapping[str, float], *, steps: int, entities: float) -> dict[str, float]:
    """Say what an iteration cost.

    Args:
        seconds: Wall time of each of `PHASES`, and "total".
        steps: Environment steps learned from.
        entities: Entities present in their observations.
    """
    total = max(seconds["total"], 1e-9)
    return {
        "speed/steps_per_second": steps / total,
        "speed/entities_per_second": entities / total,
        **{f"time/{name}": seconds[name] / total for name in PHASES},
    }


def plain_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as floats, all tensors of a device in one transfer; None is left out."""
    from entity_encoder.agents.monitor.protos import to_floats

    return to_floats(metrics)
