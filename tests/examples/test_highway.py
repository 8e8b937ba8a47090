"""The comparison on highway-env runs, resumes, and says what it compares."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip(
    "highway_env", reason="highway-env is missing: pip install entity-encoder[envs]"
)
pytest.importorskip("stable_baselines3", reason="SB3 is missing: pip install entity-encoder[sb3]")

from examples import highway

SHORT = {"vehicles_count": 3, "simulation_frequency": 2, "policy_frequency": 2, "duration": 1}


def test_all_arms_run_and_what_is_done_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**highway.CONFIGS["highway-v0"], **SHORT}
    monkeypatch.setitem(highway.CONFIGS, "highway-v0", config)
    file = tmp_path / "rows.json"
    options = ["--steps", "8", "--seeds", "1", "--episodes", "1", "--json", str(file)]

    def small(arm: str, env: Any, seed: int) -> Any:
        model = make_model(arm, env, seed)
        model.n_steps = model.rollout_buffer.buffer_size = 2
        model.n_epochs = 1
        model.rollout_buffer.reset()
        return model

    make_model = highway.make_model
    monkeypatch.setattr(highway, "make_model", small)
    rows = highway.main(options)
    assert [row["arm"] for row in rows] == list(highway.ARMS)
    assert all(0 < row["return"] <= row["length"] <= 2 for row in rows)
    assert json.loads(file.read_text()) == rows
    monkeypatch.setattr(highway, "run_arm", None)
    assert highway.main(options) == rows
    shown = capsys.readouterr().out
    assert all(f"| {arm} |" in shown for arm in highway.ARMS)


def test_the_script_s_attention_ignores_absent_rows() -> None:
    torch.manual_seed(0)
    module = highway.ScriptAttention(spaces.Box(-1, 1, (5, 7), np.float32), width=6, heads=2)
    rows = torch.randn(3, 5, 7)
    rows[..., 0] = torch.tensor([1.0, 1, 0, 1, 0])
    changed = rows.clone()
    changed[:, 2, 1:] = 9.0
    torch.testing.assert_close(module(rows), module(changed))
    changed[:, 1, 1:] = 9.0
    assert not torch.allclose(module(rows), module(changed))


def test_the_table_says_how_sure_it_is() -> None:
    row = {"env": "e", "steps": 9, "return_sd": 1.5, "length": 7, "crashed": 0.25, "cpu_seconds": 3}
    rows = [{**row, "arm": "entity", "seed": s, "return": r} for s, r in enumerate((10, 12, 14))]
    # t(.975, 2) = 4.303, sd = 2: 12 +- 4.303 * 2 / sqrt(3) = 12 +- 4.97
    assert "| entity | 12.0 (7.0 to 17.0) | 10.0 (sd 1.5), 12.0" in highway.table(rows)
    assert "| entity | 10.0 (one seed) |" in highway.table(rows[:1])
