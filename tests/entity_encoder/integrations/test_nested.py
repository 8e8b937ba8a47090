from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntityEncoder
from entity_encoder.integrations.nested import (
    FlattenKeys,
    flatten_keys,
    flatten_space,
    unflatten_keys,
)


class Nested(gymnasium.Env[Any, Any]):
    observation_space: Any = spaces.Dict(
        units=spaces.Dict(x=spaces.Box(-1, 1, (4, 3)), mask=spaces.MultiBinary(4)),
        map=spaces.Dict(
            rocks=spaces.Dict(x=spaces.Box(-1, 1, (2, 1)), mask=spaces.MultiBinary(2)),
            size=spaces.Box(0, 1, (2,)),
        ),
        time=spaces.Box(0, 1, (1,)),
    )
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


def test_keys_go_flat_and_back() -> None:
    nested = {"a": 1, "b": {"c": 2, "d": {"e": 3}}}
    flat = flatten_keys(nested)
    assert flat == {"a": 1, "b.c": 2, "b.d.e": 3}
    assert unflatten_keys(flat) == nested
    assert flatten_keys(nested, separator="/") == {"a": 1, "b/c": 2, "b/d/e": 3}


def test_a_wrapped_environment_is_read_with_the_masks_beside_the_tables() -> None:
    env = FlattenKeys(Nested())
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    schema = env.entity_schema
    assert {group.name: group.mask_key for group in schema.groups} == {
        "units.x": "units.mask",
        "map.rocks.x": "map.rocks.mask",
    }
    assert {item.name for item in schema.globals} == {"map.size", "time"}
    torch.manual_seed(0)
    encoder = EntityEncoder(schema, d_model=8, n_heads=2)
    expected = encoder(observation).pooled
    observation["units.x"][observation["units.mask"] == 0] = np.nan
    assert torch.equal(encoder(observation).pooled, expected)
    again = unflatten_keys(env.step(0)[0])
    assert set(again) == {"units", "map", "time"}


def test_a_key_that_holds_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"separator '\.', got 'a\.b'"):
        flatten_space(spaces.Dict({"a.b": spaces.Box(0, 1, (1,))}))
