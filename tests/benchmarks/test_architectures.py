"""Claims about the comparison of architectures: the same game, and nobody gets more parameters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.learning import architectures
from benchmarks.learning.flat import Flattened
from entity_encoder.agents import PPOConfig
from entity_encoder.agents.making import make_environments

CONFIG = PPOConfig(num_envs=4, rollout_steps=8, total_steps=32)


@pytest.mark.parametrize("task", architectures.TASKS)
def test_the_flat_view_shows_the_same_game(task: str) -> None:
    env_id = f"Entity/{task}-v0"
    plain = make_environments(env_id, num_envs=4)
    flat = Flattened(make_environments(env_id, num_envs=4))
    seen, _ = plain.reset(seed=3)
    shown, _ = flat.reset(seed=3)
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(40):
        expected = np.concatenate(
            [np.asarray(seen[key], np.float32).reshape(4, -1) for key in seen], axis=1
        )
        np.testing.assert_array_equal(shown["everything"][:, 0].numpy(), expected)
        legal = shown["action_mask"].numpy()
        action = torch.tensor([rng.choice(np.flatnonzero(row)) for row in legal])
        seen, reward, over, _, info = plain.step(action)
        shown, paid, finished, _, told = flat.step(action)
        assert torch.equal(reward, paid)
        assert torch.equal(over, finished)
        ended += int(over.sum())
        if "final_obs" in info:
            assert set(told["final_obs"]) == set(shown)
    assert ended


def test_only_tasks_that_point_can_be_flattened() -> None:
    with pytest.raises(TypeError, match="action space must be SelectEntity, got Discrete"):
        Flattened(make_environments("Entity/Minefield-v0", num_envs=2))


@pytest.mark.parametrize("task", architectures.TASKS)
def test_nobody_has_more_parameters_than_attention_or_much_fewer(task: str) -> None:
    sizes = [
        architectures.parameters(architectures.make_agent(task, arm, CONFIG))
        for arm in architectures.ARMS
    ]
    assert max(sizes) == sizes[0]
    assert min(sizes) > 0.85 * sizes[0]


def test_what_was_run_is_kept_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "TASKS", ("LockChain",))
    file = tmp_path / "found.json"
    words = ["--seeds", "1", "--steps", "4096", "--episodes", "4", "--json", str(file)]
    architectures.main(words)
    rows = json.loads(file.read_text())
    assert [row["arm"] for row in rows] == list(architectures.ARMS)
    assert all(row["steps"] == 4096 and 0 <= row["return"] <= 1 for row in rows)
    assert (tmp_path / "found.png").exists()
    assert "| LockChain | flattened, MLP |" in (tmp_path / "found.md").read_text()
    written = file.stat().st_mtime_ns
    architectures.main(words)
    assert file.stat().st_mtime_ns == written
