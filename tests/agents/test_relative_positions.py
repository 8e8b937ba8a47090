"""What positions relative to the player are worth: the same training with and without them."""

from __future__ import annotations

import dataclasses

import pytest

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.environments import find_schema
from entity_encoder.agents.making import make_environments
from entity_encoder.schema import EntitySchema

LAVA = "Entity/FloorIsLava-v0"
STEPS = 30_000


def declared_schema() -> EntitySchema:
    env = make_environments(LAVA, num_envs=1)
    schema = find_schema(env)
    env.close()
    return schema


def score(schema: EntitySchema) -> float:
    agent = PPO(LAVA, PPOConfig(total_steps=STEPS, seed=1), schema=schema, progress=False)
    agent.learn()
    result = agent.evaluate(episodes=500).score
    assert result is not None
    return result.mean


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_floor_is_lava_is_learned_from_the_players_point_of_view_only() -> None:
    """The tiles lie within 1 of a player who stands anywhere within 1,000 of the origin."""
    schema = declared_schema()
    assert schema.frame is not None
    assert score(schema) >= 0.95
    assert score(dataclasses.replace(schema, frame=None)) < 0.3
