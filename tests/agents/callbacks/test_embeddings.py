"""Vectors for the projector: one row for each present entity, with its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import Embeddings
from entity_encoder.agents.callbacks.embeddings import entity_table

LAVA = "Entity/FloorIsLava-v0"


def agent(**options: Any) -> PPO:
    config = PPOConfig(
        total_steps=45, num_envs=5, rollout_steps=9, d_model=8, n_layers=1, threads=1, epochs=1
    )
    return PPO(LAVA, config, progress=False, **options)


def test_the_table_holds_every_present_entity_by_kind() -> None:
    trained = agent().learn()
    seen = trained.envs.observation
    vectors, labels = entity_table(trained.policy, seen, most=1000)
    kinds = labels["kind"]
    assert kinds.count("player") == kinds.count("high_ground") == 5
    assert kinds.count("lava") == int(seen["lava_mask"].sum())
    encoding = trained.policy.encoder(seen)
    last, env = kinds.index("lava"), int(labels["environment"][kinds.index("lava")])
    slot = int(labels["slot"][last])
    torch.testing.assert_close(vectors[last], encoding.group("lava")[0][env, slot].detach())
    x, y = seen["lava"][env, slot].tolist()
    assert labels["features"][last] == f"x {x:.3g}, y {y:.3g}"


def test_of_too_many_an_even_share_is_taken() -> None:
    trained = agent().learn()
    vectors, labels = entity_table(trained.policy, trained.envs.observation, most=7)
    assert 4 <= len(vectors) <= 7
    assert set(labels["kind"]) == {"player", "high_ground", "lava"} or len(vectors) < 7


def test_without_entities_the_table_is_empty() -> None:
    trained = agent().learn()
    seen = {
        key: torch.zeros_like(value) if key.endswith("_mask") else value
        for key, value in trained.envs.observation.items()
    }
    vectors, labels = entity_table(trained.policy, seen, most=7)
    assert vectors.shape == (0, 8)
    assert set(map(len, labels.values())) == {0}


def test_training_leaves_the_latest_table(tmp_path: Path) -> None:
    agent(run_dir=tmp_path, callbacks=[Embeddings()]).learn()
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_name: "entities at step 45"' in config
    rows = (tmp_path / "projector" / "entities.tsv").read_text().splitlines()
    known = (tmp_path / "projector" / "entities_labels.tsv").read_text().splitlines()
    assert len(known) == len(rows) + 1
    assert known[0] == "kind\tenvironment\tslot\tfeatures"
