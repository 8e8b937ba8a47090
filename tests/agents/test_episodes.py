import math

import torch

from entity_encoder.agents.collect import count_entities
from entity_encoder.agents.episodes import EpisodeLog, mean_of
from tests.cases.adapter import rollout
from tests.cases.toys import counters


def test_episodes_are_put_together_over_several_rollouts() -> None:
    done, envs = rollout(counters([3, 2], "NEXT_STEP"), 10)
    count = count_entities(envs.schema, done.observation)
    whole = EpisodeLog(2)
    expected = whole.update(done, count)
    assert [(e.length, e.total) for e in expected] == [
        (2, 3.0),
        (3, 6.0),
        (2, 3.0),
        (3, 6.0),
        (2, 3.0),
    ]

    pieces, found = EpisodeLog(2), []
    for rows in (slice(0, 1), slice(1, 4), slice(4, 10)):
        part, _ = rollout(counters([3, 2], "NEXT_STEP"), 10)
        for name in ("reward", "valid", "begins", "terminated", "truncated"):
            setattr(part, name, getattr(done, name)[rows])
        part.outcomes = {name: x[rows] for name, x in done.outcomes.items()}
        found += pieces.update(part, count[rows])
        again = EpisodeLog(2)  # a resume between two rollouts
        again.set_state(pieces.get_state(), 2)
        pieces = again
    assert found == expected
    assert pieces.finished == 5
    assert list(pieces.recent) == expected


def test_entities_are_those_of_the_first_observation_and_scores_come_along() -> None:
    done, _ = rollout(counters([3, 2], "SAME_STEP"), 6)
    count = torch.arange(12).view(6, 2)  # pretend that entities come and go
    episodes = EpisodeLog(2).update(done, count)
    assert [e.entities for e in episodes] == [1, 0, 5, 6, 9]
    assert [round(e.score, 3) for e in episodes] == [0.2, 0.3, 0.2, 0.3, 0.2]
    assert all(math.isnan(e.success) for e in episodes)


def test_means_leave_out_what_is_unknown() -> None:
    done, envs = rollout(counters([3, 2], "SAME_STEP"), 6)
    log = EpisodeLog(2, window=3)
    log.update(done, count_entities(envs.schema, done.observation))
    assert log.mean("length") == (2 + 3 + 2) / 3
    assert math.isnan(log.mean("success"))
    assert math.isnan(mean_of([], "total"))


def test_unfinished_episodes_can_be_forgotten() -> None:
    done, envs = rollout(counters([4], "SAME_STEP"), 3)
    log = EpisodeLog(1)
    log.update(done, count_entities(envs.schema, done.observation))
    assert log.length.tolist() == [3]
    log.forget_unfinished()
    assert log.length.tolist() == log.total.tolist() == [0]
