"""Train against past versions of the policy, and rate them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from entity_encoder.agents.callbacks.clock import Clock
from entity_encoder.agents.evaluate import EVALUATION_SEED, evaluate
from entity_encoder.agents.opponents import FrozenOpponent
from entity_encoder.agents.ratings import expected_score, fit_ratings

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["SelfPlay", "Version"]


@dataclass(frozen=True)
class Version:
    """Somebody to play against: a past policy, or a script by its name."""

    name: str
    opponent: str | FrozenOpponent


class SelfPlay:
    """Let past versions of the policy command the other side.

    Training begins against a script. Every so many steps the policy is frozen as a new version,
    plays a match against the script and the versions before it, both ways round, and all get an
    Elo rating (the script's is 1000). From then on half of the environments play against the newest
    version, the others against earlier ones, drawn the more often the better they hold their own.
    With a `run_dir` the versions are kept under `<run_dir>/versions`, and a resumed run goes on
    with them.

    Args:
        every: Environment steps between two versions.
        episodes: Episodes of a match, each way round.
        rivals: Number of earlier versions that a new one plays against; the script is always met.
        mixture: Number of opponents at a time, of which half are the newest version.
        script: Who commands the other side at first.

    Attributes:
        versions: The script, then all versions, oldest first.
        wins: Games that version i won against j, (n, n).
        ratings: Elo ratings, (n,).

    Raises:
        ValueError: For an environment in which nobody can be put in command.
    """

    def __init__(
        self,
        every: int = 100_000,
        *,
        episodes: int = 64,
        rivals: int = 4,
        mixture: int = 8,
        script: str = "nearest",
    ) -> None:
        self.episodes = episodes
        self.rivals = rivals
        self.mixture = mixture
        self.versions = [Version(script, script)]
        self.wins = np.zeros((1, 1))
        self._clock = Clock("every", every)

    @property
    def ratings(self) -> np.ndarray:
        """Elo ratings of all versions, (n,); the script has 1000."""
        return fit_ratings(self.wins)

    def table(self) -> str:
        """Write names and ratings in lines."""
        pairs = zip(self.versions, self.ratings, strict=True)
        return "\n".join(f"{version.name:>12}  {rating:6.0f}" for version, rating in pairs)

    def begin(self, agent: PPO) -> None:
        """Put the versions of an earlier part of the run in command."""
        _task(agent)
        table = _folder(agent) / "ratings.json" if agent.run_dir else None
        if len(self.versions) == 1 and table is not None and table.exists():
            content = json.loads(table.read_text())
            # A run may go on from a checkpoint that is older than the last version.
            names = [name for name in content["names"][1:] if int(name) <= agent.steps]
            for name in names:
                frozen = FrozenOpponent.load(table.parent / name, device=agent.device)
                self.versions.append(Version(name, frozen))
            self.wins = np.array(content["wins"])[: len(names) + 1, : len(names) + 1]
        self._appoint(agent)

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Freeze a version when it is time."""
        if self._clock.is_due(agent):
            self._freeze(agent)

    def _freeze(self, agent: PPO) -> None:
        newest = Version(str(agent.steps), FrozenOpponent(agent.policy))
        rivals = [0, *range(max(1, len(self.versions) - self.rivals), len(self.versions))]
        self.versions.append(newest)
        self.wins = np.pad(self.wins, ((0, 1), (0, 1)))
        arena = copy.deepcopy(_task(agent))
        for rival in rivals:
            self.wins[-1, rival] = _victories(arena, newest, self.versions[rival], self.episodes)
            self.wins[rival, -1] = _victories(arena, self.versions[rival], newest, self.episodes)
        agent.monitor.scalars({"self_play/rating": float(self.ratings[-1])}, agent.steps)
        if agent.run_dir is not None:
            agent.save(_folder(agent) / newest.name)
            if agent.ranks.first:
                names = [version.name for version in self.versions]
                content = {"names": names, "wins": self.wins.tolist()}
                (_folder(agent) / "ratings.json").write_text(json.dumps(content))
        self._appoint(agent)

    def _appoint(self, agent: PPO) -> None:
        """Choose who commands the other side in each environment."""
        newest, *earlier = reversed(self.versions)
        chosen = [newest]
        if earlier:
            ratings = self.ratings[::-1]
            weights = np.array([expected_score(rating, ratings[0]) for rating in ratings[1:]])
            lottery = np.random.default_rng([agent.config.seed, agent.steps])
            few = lottery.choice(len(earlier), self.mixture // 2, p=weights / weights.sum())
            chosen = [newest] * (self.mixture - len(few)) + [earlier[i] for i in few]
        _task(agent).set_opponent([version.opponent for version in chosen])


def _task(agent: PPO) -> Any:
    task = getattr(agent.envs, "env", None)
    task = getattr(task, "unwrapped", task)
    if not hasattr(task, "set_opponent"):
        raise ValueError(
            "SelfPlay needs an environment with set_opponent, such as Entity/Skirmish-v0, got "
            f"{type(task).__name__}"
        )
    return task


def _folder(agent: PPO) -> Path:
    assert agent.run_dir is not None
    return agent.run_dir / "versions"


def _victories(arena: Any, ours: Version, theirs: Version, episodes: int) -> float:
    """Return how many episodes `ours` wins as the side that learns."""
    arena.set_opponent(theirs.opponent)
    if isinstance(ours.opponent, FrozenOpponent):
        policy: Any = ours.opponent.policy
    else:
        script = ours.opponent
        policy = lambda _: arena.reference_policy(arena.state, script)
    result = evaluate(policy, arena, episodes, deterministic=False, seed=EVALUATION_SEED)
    return float(sum(episode.success for episode in result.episodes))
