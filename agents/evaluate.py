"""Say what a policy achieves: episodes chosen without favour, and how sure the mean is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from entity_encoder.agents.collect import count_entities
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.episodes import Episode
from entity_encoder.agents.machine import using_threads
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.statistics import Mean, mean_of
from entity_encoder.agents.trees import Tree, map_tree

__all__ = [
    "EVALUATION_SEED",
    "EvaluationResult",
    "count_bins",
    "evaluate",
    "random_policy",
    "reference_policy",
]

EVALUATION_SEED = 1_000_000  # far from the small numbers that people train with
COUNT_BINS = 8  # at most this many rows in the breakdown by entity count

Actions = Callable[[dict[str, Tensor]], Tree]


@dataclass(frozen=True)
class EvaluationResult:
    """What a policy achieved.

    Args:
        episodes: Every episode that counts.
        deterministic: Whether the most probable action was taken, or one was drawn; None for a
            function, which is its own affair.
        seed: The seed of environments and actions.
    """

    episodes: tuple[Episode, ...]
    deterministic: bool | None
    seed: int

    @property
    def returns(self) -> Mean:
        """Undiscounted return."""
        return mean_of([episode.total for episode in self.episodes])

    @property
    def lengths(self) -> Mean:
        """Steps in which an action acted."""
        return mean_of([float(episode.length) for episode in self.episodes])

    @property
    def score(self) -> Mean | None:
        """0 = random, 1 = the scripted reference; None where the task gives no score."""
        return self._outcome("score")

    @property
    def success(self) -> Mean | None:
        """Share of successes; None where the task does not tell."""
        return self._outcome("success")

    @property
    def by_entities(self) -> dict[tuple[int, int], Mean]:
        """Return by the number of entities at the beginning: ``{(low, high): return}``."""
        counts = np.array([episode.entities for episode in self.episodes])
        totals = np.array([episode.total for episode in self.episodes])
        return {
            (low, high): mean_of(totals[(counts >= low) & (counts <= high)])
            for low, high in count_bins(counts)
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is unknown is None."""
        summary = {"return": self.returns, "length": self.lengths}
        summary |= {k: v for k in ("score", "success") if (v := getattr(self, k)) is not None}
        return {
            "episodes": len(self.episodes),
            "deterministic": self.deterministic,
            "seed": self.seed,
            **{name: _mean_to_dict(mean) for name, mean in summary.items()},
            "return_by_entities": [
                {"from": low, "to": high, **_mean_to_dict(mean)}
                for (low, high), mean in self.by_entities.items()
            ],
        }

    def __str__(self) -> str:
        kinds = {True: ", most probable actions", False: ", sampled actions", None: ""}
        lines = [f"{len(self.episodes)} episodes{kinds[self.deterministic]}, seed {self.seed}"]
        lines.append(f"  return   {self.returns}")
        lines += [f"  score    {self.score}"] if self.score else []
        lines += [f"  success  {self.success.mean:.1%}"] if self.success else []
        lines.append(f"  length   {self.lengths.mean:.1f} steps (sd {self.lengths.sd:.1f})")
        if len(self.by_entities) > 1:
            lines.append("  return by number of entities at the beginning")
            for (low, high), mean in self.by_entities.items():
                span = f"{low}" if low == high else f"{low}-{high}"
                lines.append(f"    {span:>8}  {mean}  ({mean.count} episodes)")
        return "\n".join(lines)

    def _outcome(self, name: str) -> Mean | None:
        known = [v for e in self.episodes if not np.isnan(v := getattr(e, name))]
        return mean_of(known) if known else None


def evaluate(
    policy: EntityPolicy | Actions,
    envs: Environments | VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    deterministic: bool = True,
    seed: int = EVALUATION_SEED,
    max_episode_steps: int = 100_000,
    watch: Callable[[Environments], None] | None = None,
) -> EvaluationResult:
    """Play episodes and summarise them.

    Which episodes count is fixed before the first step: environment i contributes its first
    ``episodes // E`` ones, one more where i is below the remainder. Taking the first that *end*
    would favour short episodes. Nothing learns: no weight, no statistic of the normaliser and no
    global random state changes.

    Args:
        policy: An `EntityPolicy`, or any function from observation to action for all E rows.
        envs: Environments; they are reset, and not closed.
        episodes: How many episodes count.
        deterministic: Take the most probable action instead of drawing one.
        seed: Of environments and drawn actions; the result is a function of it.
        max_episode_steps: An episode longer than this is an error, for it may never end.
        watch: Called with each new observation, for instance to keep frames.

    Returns:
        The episodes with mean, standard deviation and 95 % confidence interval.

    Raises:
        ValueError: Without episodes, or when one does not end.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    # As in training: these operations are too small to be shared by threads, which cost most where
    # the machine is busy.
    with using_threads(1):
        found = _play(policy, envs, episodes, deterministic, seed, max_episode_steps, watch)
    played = tuple(episode for done in found for episode in done)
    known = deterministic if isinstance(policy, EntityPolicy) else None
    return EvaluationResult(played, known, seed)


def _play(
    policy: EntityPolicy | Actions,
    envs: Environments | VectorEnv[Any, Any, Any],
    episodes: int,
    deterministic: bool,
    seed: int,
    max_episode_steps: int,
    watch: Callable[[Environments], None] | None,
) -> list[list[Episode]]:
    """Return the episodes that count, environment by environment."""
    if not isinstance(envs, Environments):
        envs = Environments(envs, device=_device_of(policy))
    player = _Player(policy, envs, deterministic, seed)
    quota = [
        episodes // envs.num_envs + (i < episodes % envs.num_envs) for i in range(envs.num_envs)
    ]
    found: list[list[Episode]] = [[] for _ in quota]
    total = torch.zeros(envs.num_envs, dtype=torch.float64, device=envs.device)
    length = torch.zeros(envs.num_envs, dtype=torch.int64, device=envs.device)
    entities = torch.zeros_like(length)
    if watch is not None:
        watch(envs)
    while any(len(done) < wanted for done, wanted in zip(found, quota, strict=True)):
        present = count_entities(envs.schema, envs.observation)
        entities = torch.where(envs.begins, present, entities)
        step = player.step()
        total += torch.where(step.valid, step.reward.double(), 0.0)
        length += step.valid
        ended = (step.terminated | step.truncated) & step.valid
        for env in ended.nonzero().flatten().tolist():
            if len(found[env]) < quota[env]:
                outcomes = {name: float(x[env]) for name, x in step.outcomes.items()}
                one = Episode(int(length[env]), float(total[env]), int(entities[env]), **outcomes)
                found[env].append(one)
        total, length = total.masked_fill(ended, 0.0), length.masked_fill(ended, 0)
        if int(length.max()) >= max_episode_steps:
            raise ValueError(
                f"episode must end within max_episode_steps={max_episode_steps}, got none in "
                f"environment {int(length.argmax())}; give the task a time limit"
            )
        if watch is not None:
            watch(envs)
    return found


def random_policy(envs: Environments) -> Actions:
    """Draw among the legal actions, by the environments' own action space."""
    return lambda _: envs.env.action_space.sample()


def reference_policy(envs: Environments) -> Actions:
    """Follow the task's scripted policy, which knows the whole state.

    Raises:
        ValueError: The environments have none.
    """
    env: Any = envs.env.unwrapped
    if not hasattr(env, "reference_policy"):
        raise ValueError(
            f"{type(env).__name__} must define reference_policy to be played by it; "
            "the tasks under Entity/ do"
        )
    return lambda _: env.reference_policy(env.state)


def count_bins(counts: Sequence[int] | np.ndarray) -> list[tuple[int, int]]:
    """Divide entity counts into at most eight ranges of about equal width, all of them used."""
    distinct = np.unique(np.asarray(counts, dtype=np.int64))
    if distinct.size <= COUNT_BINS:
        return [(int(count), int(count)) for count in distinct]
    edges = np.linspace(distinct[0], distinct[-1] + 1, COUNT_BINS + 1).round().astype(np.int64)
    spans = zip(edges[:-1].tolist(), (edges[1:] - 1).tolist(), strict=True)
    return [(a, b) for a, b in spans if ((distinct >= a) & (distinct <= b)).any()]


class _Player:
    """Let a policy act in environments, with a random state of its own."""

    def __init__(
        self, policy: EntityPolicy | Actions, envs: Environments, deterministic: bool, seed: int
    ) -> None:
        self.policy = policy
        self.envs = envs
        self.deterministic = deterministic
        self.generator = torch.Generator(envs.device).manual_seed(seed)
        self.state: Tensor | None = None
        envs.env.action_space.seed(seed)
        envs.reset(seed=seed)

    def step(self) -> Any:
        """Act once everywhere."""
        if not isinstance(self.policy, EntityPolicy):
            action = map_tree(torch.as_tensor, self.policy(self.envs.observation))
            return self.envs.step(action)
        choice = self.policy.act(
            self.envs.observation,
            state=self.state,
            begins=self.envs.begins,
            active=~self.envs.ended,
            deterministic=self.deterministic,
            generator=self.generator,
        )
        self.state = choice.state
        return self.envs.step(choice.env_action)


def _device_of(policy: EntityPolicy | Actions) -> torch.device:
    if isinstance(policy, EntityPolicy):
        return next(policy.parameters()).device
    return torch.device("cpu")


def _mean_to_dict(mean: Mean) -> Mapping[str, float | int | None]:
    values = {"mean": mean.mean, "sd": mean.sd, "low": mean.low, "high": mean.high}
    return {k: None if np.isnan(v) else v for k, v in values.items()} | {"count": mean.count}
