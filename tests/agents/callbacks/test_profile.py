"""A profile on request: a table in the log, and a trace that tools can open."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import Profile


def profiled(run_dir: Path, updates: int, profile: Profile) -> str | None:
    config = PPOConfig(
        total_steps=45 * updates,
        num_envs=5,
        rollout_steps=9,
        d_model=8,
        n_layers=1,
        threads=1,
        epochs=1,
    )
    PPO(
        "Entity/FloorIsLava-v0", config, run_dir=run_dir, callbacks=[profile], progress=False
    ).learn()
    log = EventAccumulator(str(run_dir))
    log.Reload()
    if "profile/text_summary" not in log.Tags()["tensors"]:
        return None
    (event,) = log.Tensors("profile/text_summary")
    text: str = event.tensor_proto.string_val[0].decode()
    return text


@pytest.mark.parametrize("iterations", [1, 5], ids=["whole", "training ends in it"])
def test_the_costliest_operations_and_the_trace_are_kept(tmp_path: Path, iterations: int) -> None:
    text = profiled(tmp_path, 2, Profile(iterations, after=1))
    assert text is not None
    assert "aten::addmm" in text
    with gzip.open(tmp_path / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert any(event.get("name") == "aten::addmm" for event in events)


def test_a_training_too_short_for_it_has_none(tmp_path: Path) -> None:
    assert profiled(tmp_path, 1, Profile(1, after=2)) is None
    assert not (tmp_path / "trace.json.gz").exists()


@pytest.mark.parametrize("numbers", [(0, 2), (1, 0)])
def test_something_is_profiled(numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"must be at least 1, got {numbers[0]} and {numbers[1]}"):
        Profile(numbers[0], after=numbers[1])
