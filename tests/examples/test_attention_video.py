"""The attention video in a short form: trained, filmed, and what the frames hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from entity_encoder.agents import PPO, PPOConfig
from examples import attention_video


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "cherries"
    config = PPOConfig(
        total_steps=45,
        num_envs=5,
        rollout_steps=9,
        d_model=8,
        n_layers=1,
        threads=1,
        epochs=1,
        recurrent=6,
    )
    PPO("Entity/CherryPick-v0", config, run_dir=path, progress=False).learn()
    return path


def sizes(path: Path) -> list[Any]:
    with Image.open(path) as film:
        return [frame.size for frame in ImageSequence.Iterator(film)]


def test_every_frame_has_a_panel_beside(run_dir: Path) -> None:
    path = attention_video.main([str(run_dir), "--episodes", "1"])
    assert path == run_dir / "attention.gif"
    found = sizes(path)
    assert len(found) == 17  # 16 picks, and what is left
    assert len(set(found)) == 1
    assert found[0][0] == 480 + 12 + 250


def test_each_layer_and_head_may_have_its_frame(run_dir: Path, tmp_path: Path) -> None:
    words = ["--maps", "each", "--max-frames", "2", "--out", str(tmp_path / "heads.gif")]
    path = attention_video.main([str(run_dir), *words])
    assert len(sizes(path)) == 2
    assert sizes(path)[0][0] == 2 * (480 * 360 // 520) + 2 * 12 + 250  # one layer, two heads


def test_frames_of_several_sizes_are_padded_with_white() -> None:
    small, large = np.zeros((3, 5, 3), np.uint8), np.zeros((7, 4, 3), np.uint8)
    first, second = attention_video._same_size([small, large])
    assert first.shape == second.shape == (7, 5, 3)
    assert (first[:3] == 0).all()
    assert (first[3:] == 255).all()
    assert (second[:, 4] == 255).all()
