"""What happened to whole episodes: returns, lengths, scores, kept by ourselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entity_encoder.agents.rollout import Rollout

__all__ = ["Episode", "EpisodeLog", "mean_of"]


@dataclass(frozen=True)
class Episode:
    """One finished episode.

    Args:
        length: Steps in which an action acted.
        total: Sum of rewards, undiscounted.
        entities: Entities present in its first observation.
        score: (return - random) / (reference - random) where the task reports it, else NaN.
        success: 1 or 0 where the task reports it, else NaN.
    """

    length: int
    total: float
    entities: int
    score: float = float("nan")
    success: float = float("nan")


class EpisodeLog:
    """Cut rollouts into episodes, which may span several of them.

    Args:
        num_envs: E.
        window: Number of past episodes that `mean` looks at.

    Attributes:
        recent: The last episodes, oldest first.
        finished: Episodes finished since the beginning.
    """

    def __init__(self, num_envs: int, window: int = 100) -> None:
        self.total = np.zeros(num_envs)
        self.length = np.zeros(num_envs, np.int64)
        self.entities = np.zeros(num_envs, np.int64)
        self.recent: deque[Episode] = deque(maxlen=window)
        self.finished = 0

    def update(self, rollout: Rollout, count: Tensor) -> list[Episode]:
        """Take in a rollout and return the episodes that ended in it, in order of time.

        Args:
            rollout: A finished rollout.
            count: (T, E) present entities.
        """
        reward = rollout.reward.double().cpu().numpy()
        valid, begins = rollout.valid.cpu().numpy(), rollout.begins.cpu().numpy()
        ended = (rollout.terminated | rollout.truncated).cpu().numpy() & valid
        entities = count.cpu().numpy()
        outcomes = {name: values.cpu().numpy() for name, values in rollout.outcomes.items()}
        episodes: list[Episode] = []
        for t in range(len(reward)):
            self.entities = np.where(begins[t], entities[t], self.entities)
            self.total += np.where(valid[t], reward[t], 0.0)
            self.length += valid[t]
            for env in np.flatnonzero(ended[t]).tolist():
                found = {name: float(values[t, env]) for name, values in outcomes.items()}
                episodes.append(
                    Episode(
                        int(self.length[env]),
                        float(self.total[env]),
                        int(self.entities[env]),
                        **found,
                    )
                )
            self.total[ended[t]] = 0.0
            self.length[ended[t]] = 0
        self.recent.extend(episodes)
        self.finished += len(episodes)
        return episodes

    def mean(self, name: str) -> float:
        """Return the mean of a field over the recent episodes that have it; NaN without any."""
        return mean_of(self.recent, name)

    def get_state(self) -> dict[str, Any]:
        """Return plain values and arrays that `set_state` takes."""
        return {
            "total": self.total.copy(),
            "length": self.length.copy(),
            "entities": self.entities.copy(),
            "recent": [asdict(episode) for episode in self.recent],
            "finished": self.finished,
        }

    def set_state(self, content: Mapping[str, Any], num_envs: int) -> None:
        """Continue from what `get_state` returned; the unfinished only for as many environments."""
        if len(content["total"]) == num_envs:
            for name in ("total", "length", "entities"):
                setattr(self, name, torch.as_tensor(content[name]).numpy().copy())
        self.recent = deque((Episode(**one) for one in content["recent"]), self.recent.maxlen)
        self.finished = int(content["finished"])

    def forget_unfinished(self) -> None:
        """Drop what was counted of episodes that will not be continued."""
        self.total[:], self.length[:], self.entities[:] = 0, 0, 0


def mean_of(episodes: Any, name: str) -> float:
    """Return the mean of a field over the episodes that have it; NaN without any."""
    values = np.array([getattr(episode, name) for episode in episodes], dtype=np.float64)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")
