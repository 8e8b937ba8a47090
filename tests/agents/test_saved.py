import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntitySchema
from entity_encoder.agents import PPO
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.environments import find_schema
from entity_encoder.agents.making import make_environments
from entity_encoder.agents.saved import (
    check_same_schema,
    load_policy,
    make_policy,
    restore_weights,
    show_to,
)

SPACE = spaces.Dict(x=spaces.Box(-1, 1, (3, 2), np.float32), x_mask=spaces.MultiBinary(3))
SCHEMA = EntitySchema.from_space(SPACE)


def test_weights_come_from_the_seed_alone() -> None:
    one, two, other = (
        make_policy(SCHEMA, spaces.Discrete(2), PPOConfig(seed=seed)).state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_every_setting_of_the_policy_reaches_it() -> None:
    config = PPOConfig(
        d_model=12,
        n_heads=3,
        n_layers=1,
        d_ff=7,
        pooling="max",
        core="induced",
        count_feature=True,
        normalise_observations=False,
        hidden=(5,),
        separate_critic=True,
        recurrent=4,
        attention="dense",
    )
    policy = make_policy(SCHEMA, spaces.Discrete(2), config)
    assert policy.encoder.d_model == 12
    assert policy.encoder.stack.layers[0].inner.out_features == 7  # type: ignore[union-attr]
    assert not policy.encoder.normalise
    assert policy.encoder.counts is not None
    assert policy.encoder.attention == "dense"
    assert policy.separate_critic
    assert policy.state_size == 8


def test_capacities_may_differ_and_nothing_else() -> None:
    check_same_schema(SCHEMA, SCHEMA.with_slots({"x": 9}), "it")
    renamed = EntitySchema.from_space(SPACE, features={"x": ["f0", "speed"]})
    with pytest.raises(
        ValueError,
        match=r"what it was trained on, got schema\.groups\[0\]\.features\[1\] = 'speed'",
    ):
        check_same_schema(SCHEMA, renamed, "it")


def test_a_weight_of_another_shape_is_named() -> None:
    policy = make_policy(SCHEMA, spaces.Discrete(2), PPOConfig(d_model=8))
    weights = dict(policy.state_dict())
    weights["encoder.empty"] = torch.zeros(3)
    with pytest.raises(
        ValueError, match=r"weight 'encoder\.empty' must have shape \(8,\), got \(3,\)"
    ):
        restore_weights(policy, weights)


def test_a_policy_that_was_never_saved_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must hold checkpoint\.json"):
        load_policy(tmp_path)


def test_a_schema_that_was_given_stays_with_the_policy(tmp_path: Path) -> None:
    """FloorIsLava declares a frame; a policy trained without one never sees it."""
    env = make_environments("Entity/FloorIsLava-v0", num_envs=4)
    schema = dataclasses.replace(find_schema(env), frame=None)
    env.close()
    config = PPOConfig(num_envs=4, rollout_steps=8, total_steps=32)
    agent = PPO("Entity/FloorIsLava-v0", config, run_dir=tmp_path, schema=schema, progress=False)
    agent.learn()
    expected = agent.evaluate(episodes=20).to_dict()
    loaded = PPO.load(tmp_path / "checkpoint", progress=False)
    assert loaded.policy.schema == schema
    assert loaded.evaluate(episodes=20).to_dict() == expected
    policy = load_policy(tmp_path / "checkpoint")
    envs = show_to(policy, make_environments("Entity/FloorIsLava-v0", num_envs=4))
    assert envs.schema.frame is None
    envs.close()
    # Without a schema of its own the same difference is an error.
    policy.own_schema = False
    with pytest.raises(ValueError, match=r"schema\.frame"):
        show_to(policy, make_environments("Entity/FloorIsLava-v0", num_envs=4))
