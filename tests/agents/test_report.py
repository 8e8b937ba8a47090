import math

import pytest
import torch

from entity_encoder.agents.episodes import Episode
from entity_encoder.agents.report import (
    episode_metrics,
    plain_numbers,
    return_by_entities,
    rollout_metrics,
    speed_metrics,
)
from tests.agents.test_update import make_batch, small_policy


def test_episodes_are_summarised_and_what_is_unknown_is_left_out() -> None:
    found = episode_metrics([Episode(3, 1.0, 5, score=0.5), Episode(5, 3.0, 6)])
    assert found["episode/return"] == 2.0
    assert found["episode/return_sd"] == 1.0
    assert found["episode/length"] == 4.0
    assert found["episode/score"] == 0.5
    assert found["episode/success"] is None
    assert episode_metrics([]) == {"episode/ended": 0.0}


def test_returns_are_grouped_by_entities_in_ranges_that_never_change() -> None:
    episodes = [Episode(1, 2.0, 0), Episode(1, 4.0, 2), Episode(1, 9.0, 16)]
    assert list(return_by_entities(episodes, 16).values()) == [3.0, 9.0]
    assert set(return_by_entities(episodes[:1], 16)) < set(return_by_entities(episodes, 16))


def test_explained_variance_by_hand() -> None:
    batch = make_batch(small_policy(), invalid=19)  # two rows are left
    batch.target[batch.valid] = torch.tensor([1.0, 3.0])
    batch.value[batch.valid] = torch.tensor([1.0, 2.0])
    batch.count[batch.valid] = torch.tensor([4, 7])
    found = rollout_metrics(batch)
    # var(R) = 1, var(R - V) = var(0, 1) = 1/4
    assert float(found["value/explained_variance"]) == pytest.approx(0.75)
    assert float(found["value/mean"]) == pytest.approx(1.5)
    assert float(found["entities/present"]) == pytest.approx(5.5)
    batch.target[:] = 2.0
    assert math.isnan(float(rollout_metrics(batch)["value/explained_variance"]))


def test_speeds_and_shares() -> None:
    seconds = {"environment": 1.0, "inference": 2.0, "update": 4.0, "total": 8.0}
    found = speed_metrics(seconds, steps=16, entities=80)
    assert found["speed/steps_per_second"] == 2.0
    assert found["speed/entities_per_second"] == 10.0
    assert [found[f"time/{phase}"] for phase in ("environment", "inference", "update")] == [
        0.125,
        0.25,
        0.5,
    ]


def test_tensors_become_numbers() -> None:
    assert plain_numbers({"a": torch.tensor(2), "b": 1.5, "c": None}) == {"a": 2.0, "b": 1.5}
