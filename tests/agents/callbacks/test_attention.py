"""Pictures of attention during training: where they come from, and what stops them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import AttentionMaps

LAVA = "Entity/FloorIsLava-v0"
SMALL: dict[str, Any] = {
    "num_envs": 5,
    "rollout_steps": 9,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
    "threads": 1,
    "epochs": 1,
}


def images(run_dir: Path, env: Any = LAVA, updates: int = 1, **changes: Any) -> dict[str, Any]:
    config = PPOConfig(total_steps=45 * updates, **{**SMALL, **changes})
    callback = AttentionMaps(every=45)
    PPO(env, config, run_dir=run_dir, callbacks=[callback], progress=False).learn()
    log = EventAccumulator(str(run_dir), size_guidance={"images": 0})
    log.Reload()
    return {tag: log.Images(tag) for tag in log.Tags()["images"]}


def pixels(event: Any) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))


def test_the_same_moment_is_shown_each_time(tmp_path: Path) -> None:
    found = images(tmp_path, updates=2, learning_rate=1e-9)
    first, second = (pixels(event) for event in found["attention/frame"])
    # What is drawn of the environment is one picture; only the policy has moved a little.
    assert first.shape == second.shape
    assert (first == second).all(-1).mean() > 0.95


def test_environments_given_as_objects_show_matrices_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = images(tmp_path, gymnasium.make_vec(LAVA, 5, output="torch"), updates=2)
    assert list(found) == ["attention/matrix"]
    assert [event.step for event in found["attention/matrix"]] == [45, 90]
    assert [r.message for r in caplog.records] == [
        "attention without frames: the environment was given as objects; an id can be made again"
    ]


def test_a_core_without_attention_is_said_once_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert images(tmp_path, updates=2, core="pool") == {}
    (record,) = caplog.records
    assert record.message.startswith("no attention maps: return_attention needs core='attention'")


def test_without_a_log_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entity_encoder.agents.callbacks.attention.look_at", None)
    config = PPOConfig(total_steps=45, **SMALL)
    assert PPO(LAVA, config, callbacks=[AttentionMaps()], progress=False).learn().steps == 45
