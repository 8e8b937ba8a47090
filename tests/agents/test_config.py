import dataclasses
import json
from typing import Any

import pytest

from entity_encoder.agents.config import PPOConfig


def test_every_setting_says_what_it_means() -> None:
    for field in dataclasses.fields(PPOConfig):
        assert field.metadata["help"], field.name


def test_settings_survive_json() -> None:
    config = PPOConfig(hidden=(32, 16), target_kl=0.02, d_ff=None)
    again = PPOConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config


def test_unknown_settings_name_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'gama' must be a setting .* did you mean 'gamma'"):
        PPOConfig.from_dict({"gama": 0.9})


def test_a_minibatch_is_a_sixteenth_of_a_rollout_unless_told() -> None:
    assert PPOConfig(num_envs=3, rollout_steps=7).samples_per_minibatch == 2  # 21 rows
    assert PPOConfig(num_envs=64, rollout_steps=64).samples_per_minibatch == 256
    assert PPOConfig(minibatch_size=5).samples_per_minibatch == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"minibatch_size": 0}, "minibatch_size must be at least 1, got 0"),
        ({"learning_rate": -1.0}, r"learning_rate must not be negative, got -1\.0"),
        ({"clip_range": 0.0}, r"clip_range must be positive, got 0\.0"),
        ({"gamma": 1.1}, r"gamma must be in \[0, 1\], got 1\.1"),
        ({"target_kl": 0.0}, r"target_kl must be positive or None, got 0\.0"),
        ({"entropy_schedule": "x"}, "entropy_schedule must be one of"),
        ({"dropout": 0.5}, r"dropout must be 0 for PPO, got 0\.5"),
        ({"num_envs": 2, "workers": 3}, "workers must be at most num_envs=2, got 3"),
        (
            {"total_steps": 500, "num_envs": 7, "rollout_steps": 100},
            r"total_steps must be at least one rollout, .*7 \* 100 = 700, got 500",
        ),
        (
            {"num_envs": 2, "rollout_steps": 3, "minibatch_size": 7},
            r"minibatch_size must be at most one rollout, .* = 6, got 7",
        ),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPOConfig(**settings)
