"""Evaluation: which episodes count, what is measured, and what must not change."""

from __future__ import annotations

import copy
import json
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from entity_encoder.agents.environments import Environments
from entity_encoder.agents.episodes import Episode
from entity_encoder.agents.evaluate import (
    EvaluationResult,
    count_bins,
    evaluate,
    random_policy,
    reference_policy,
)
from entity_encoder.agents.policy import EntityPolicy

SLOTS = 5


class Fuse(gymnasium.Env[Any, Any]):
    """Burn for a number of steps drawn at the beginning; each pays 1, or 2 for action 1.

    The number of entities is the length of the episode, capped at the number of slots.
    """

    def __init__(self, *, endless: bool = False) -> None:
        self.observation_space = spaces.Dict(
            spark=spaces.Box(0, 20, (SLOTS, 1), np.float32), spark_mask=spaces.MultiBinary(SLOTS)
        )
        self.action_space = spaces.Discrete(2)
        self.endless = endless
        self.length = self.burnt = 0

    def observe(self) -> dict[str, np.ndarray]:
        mask = (np.arange(SLOTS) < self.length).astype(np.int8)
        left = np.full((SLOTS, 1), self.length - self.burnt, np.float32)
        return {"spark": left * mask[:, None], "spark_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.length, self.burnt = int(self.np_random.integers(1, 12)), 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.burnt += 1
        over = self.burnt >= self.length and not self.endless
        self.length = max(self.length, self.burnt)
        info = {"score": self.burnt / 10, "success": self.burnt > 5} if over else {}
        odd = self.length % 2 == 1
        return self.observe(), 1.0 + action, over and odd, over and not odd, info


def fuses(count: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> SyncVectorEnv:
    return SyncVectorEnv([Fuse] * count, autoreset_mode=mode)


def wait(observation: dict[str, torch.Tensor]) -> np.ndarray:
    """Take action 0 everywhere."""
    return np.zeros(len(observation["spark"]), np.int64)


def lengths_alone(seed: int, episodes: int) -> list[int]:
    """Return the first lengths that a single environment draws."""
    env, found = Fuse(), []
    env.reset(seed=seed)
    for _ in range(episodes):
        found.append(env.length)
        env.reset()
    return found


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("episodes", [1, 2, 3, 11])
def test_each_environment_contributes_its_first_episodes(
    mode: AutoresetMode, episodes: int
) -> None:
    result = evaluate(wait, fuses(3, mode), episodes, seed=40)
    quota = {1: (1, 0, 0), 2: (1, 1, 0), 3: (1, 1, 1), 11: (4, 4, 3)}[episodes]
    expected = [n for i, count in enumerate(quota) for n in lengths_alone(40 + i, count)]
    assert [episode.length for episode in result.episodes] == expected
    assert [episode.total for episode in result.episodes] == expected
    assert [episode.entities for episode in result.episodes] == [min(n, SLOTS) for n in expected]
    assert [e.score for e in result.episodes] == pytest.approx([n / 10 for n in expected])
    assert [episode.success for episode in result.episodes] == [n > 5 for n in expected]


def test_short_episodes_are_not_favoured() -> None:
    # Uniform lengths 1 to 11: mean 6, standard error sqrt(10 / 60) = 0.41. The first 60 episodes
    # that end in 60 environments would have a mean below 4.
    result = evaluate(wait, fuses(60), 60, seed=0)
    assert abs(result.lengths.mean - 6) < 1.2


def test_more_environments_than_episodes_are_no_problem() -> None:
    assert len(evaluate(wait, fuses(7), 2).episodes) == 2


def test_the_result_depends_on_the_seed_alone() -> None:
    runs = [evaluate(wait, fuses(3), 9, seed=seed).episodes for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def make_policy(envs: Environments) -> EntityPolicy:
    torch.manual_seed(0)
    return EntityPolicy(envs.schema, envs.action_space, d_model=8, n_heads=2, n_layers=1)


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_changes_no_weight_no_statistic_and_no_global_randomness(
    deterministic: bool,
) -> None:
    envs = Environments(fuses(3))
    policy = make_policy(envs)
    policy.update_statistics(envs.reset(seed=1))
    before = copy.deepcopy(policy.state_dict())
    state = torch.get_rng_state()
    result = evaluate(policy, envs, 7, deterministic=deterministic, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    after = policy.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert result.deterministic is deterministic
    again = evaluate(policy, envs, 7, deterministic=deterministic, seed=3)
    assert again.episodes == result.episodes


def test_deterministic_takes_the_most_probable_action_and_sampling_draws() -> None:
    envs = Environments(fuses(3))
    policy = make_policy(envs)
    best = evaluate(policy, envs, 6, seed=3)
    per_step = {episode.total / episode.length for episode in best.episodes}
    assert per_step <= {1.0, 2.0}  # the same choice everywhere, for an untrained policy
    drawn = evaluate(policy, envs, 6, deterministic=False, seed=3)
    assert {episode.total / episode.length for episode in drawn.episodes} - {1.0, 2.0}


def test_a_recurrent_policy_begins_each_episode_without_memory() -> None:
    envs = Environments(fuses(3))
    torch.manual_seed(0)
    policy = EntityPolicy(
        envs.schema, envs.action_space, d_model=8, n_heads=2, n_layers=1, recurrent=5
    )
    many = evaluate(policy, envs, 6, seed=3).episodes
    alone = evaluate(policy, fuses(1), 2, seed=3).episodes
    assert many[:2] == alone


def test_random_and_reference_policies_play() -> None:
    import entity_encoder.envs  # noqa: F401

    envs = Environments(gymnasium.make_vec("Entity/FloorIsLava-v0", 4, output="torch"))
    best = evaluate(reference_policy(envs), envs, 12)
    assert best.returns.mean == 1.0
    assert best.deterministic is None
    drawn = evaluate(random_policy(envs), envs, 400)
    assert 0.02 < drawn.returns.mean < 0.4  # one of eight tiles is right
    assert drawn.episodes == evaluate(random_policy(envs), envs, 400).episodes


def test_environments_without_a_scripted_policy_are_named() -> None:
    with pytest.raises(ValueError, match="SyncVectorEnv must define reference_policy"):
        reference_policy(Environments(fuses(2)))


def test_no_episodes_is_an_error() -> None:
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate(wait, fuses(2), 0)


def test_an_episode_that_never_ends_is_an_error() -> None:
    endless = SyncVectorEnv([lambda: Fuse(endless=True)] * 2)
    with pytest.raises(ValueError, match="episode must end within max_episode_steps=19, got none"):
        evaluate(wait, Environments(endless), 2, max_episode_steps=19)


def test_watch_sees_every_observation() -> None:
    seen: list[float] = []
    result = evaluate(
        wait,
        Environments(fuses(1)),
        1,
        seed=2,
        watch=lambda envs: seen.append(float(envs.observation["spark"][0, 0, 0])),
    )
    (length,) = (episode.length for episode in result.episodes)
    assert seen == list(range(length, -1, -1))


def result_of(*returns: float, entities: list[int] | None = None, **fields: Any) -> Any:
    counts = entities or [3] * len(returns)
    pairs = zip(returns, counts, strict=True)
    episodes = tuple(Episode(7, value, count, **fields) for value, count in pairs)
    return EvaluationResult(episodes, True, 5)


def test_returns_are_broken_down_by_entity_count() -> None:
    result = result_of(1.0, 2.0, 4.0, 8.0, entities=[2, 5, 2, 5])
    found = {place: (mean.mean, mean.count) for place, mean in result.by_entities.items()}
    assert found == {(2, 2): (2.5, 2), (5, 5): (5.0, 2)}


def test_many_counts_are_joined_into_ranges_without_gaps_or_overlaps() -> None:
    counts = [0, 1, 2, 3, 5, 8, 13, 21, 34, 64, 64]
    bins = count_bins(counts)
    assert len(bins) <= 8
    assert all(sum(low <= count <= high for low, high in bins) == 1 for count in counts)


def test_json_holds_plain_values_and_no_nan() -> None:
    content = json.loads(json.dumps(result_of(2.0).to_dict(), allow_nan=False))
    assert content["return"] == {"mean": 2.0, "sd": None, "low": None, "high": None, "count": 1}
    assert "score" not in content
    assert content["return_by_entities"][0]["from"] == 3
    scored = result_of(1.0, 3.0, score=0.5, success=1.0).to_dict()
    assert scored["score"]["mean"] == 0.5
    assert scored["success"]["mean"] == 1.0


def test_the_printed_result_tells_everything_once() -> None:
    text = str(result_of(1.0, 2.0, 6.0, entities=[2, 2, 4], score=0.5, success=1.0))
    assert text.splitlines() == [
        "3 episodes, most probable actions, seed 5",
        "  return   3.000 (95 %: -3.572 to 9.572, sd 2.646)",
        "  score    0.500 (95 %: 0.500 to 0.500, sd 0.000)",
        "  success  100.0%",
        "  length   7.0 steps (sd 0.0)",
        "  return by number of entities at the beginning",
        "           2  1.500 (95 %: -4.853 to 7.853, sd 0.707)  (2 episodes)",
        "           4  6.000  (1 episodes)",
    ]


def test_a_policy_is_played_with_one_thread_and_the_others_come_back() -> None:
    before = torch.get_num_threads()
    seen = set()

    def act(observation: dict[str, torch.Tensor]) -> np.ndarray:
        seen.add(torch.get_num_threads())
        return wait(observation)

    torch.set_num_threads(3)
    try:
        evaluate(act, fuses(2), 2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
