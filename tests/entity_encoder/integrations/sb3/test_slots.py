from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder import EntitySchema, PerEntity, SelectEntity
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import stable_baselines3

from entity_encoder.integrations.sb3 import (
    EntityPolicy,
    GymnasiumVecEnv,
    load_with_slots,
    policy_kwargs,
)
from entity_encoder.integrations.sb3.slots import _resize, _resize_action

sb3: Any = stable_baselines3


def saved(tmp_path: Any, policy: Any = "MultiInputPolicy", **options: Any) -> tuple[Any, Any]:
    env = Beacon(**options)
    schema = EntitySchema.from_space(env.observation_space)
    kwargs = policy_kwargs(schema=schema, **SMALL)
    model = sb3.PPO(policy, env, policy_kwargs=kwargs, n_steps=4, batch_size=4, seed=1)
    model.learn(8)
    model.save(tmp_path / "model")
    return model, tmp_path / "model"


def widened(observation: dict[str, np.ndarray], slots: int) -> dict[str, np.ndarray]:
    """Append absent slots full of junk."""
    extra = slots - observation["beacon"].shape[-2]
    return {
        **observation,
        "beacon": np.pad(
            observation["beacon"], ((0, 0), (0, extra), (0, 0)), constant_values=np.nan
        ),
        "beacon_mask": np.pad(observation["beacon_mask"], ((0, 0), (0, extra))),
    }


def test_a_model_predicts_the_same_in_a_larger_world(tmp_path: Any) -> None:
    model, path = saved(tmp_path)
    larger = load_with_slots(sb3.PPO, path, {"beacon": 9}, device="cpu")
    assert larger.observation_space["beacon"].shape == (9, 2)
    observation = observe(6)
    expected, _ = model.predict(observation, deterministic=True)
    got, _ = larger.predict(widened(observation, 9), deterministic=True)
    np.testing.assert_array_equal(got, expected)


def test_it_points_at_more_entities_and_goes_on_learning(tmp_path: Any) -> None:
    _, path = saved(tmp_path, EntityPolicy, action="point")
    larger = load_with_slots(sb3.PPO, path, {"beacon": 9}, env=Beacon(slots=9, action="point"))
    assert larger.action_space == SelectEntity("beacon", 9)
    larger.learn(8, reset_num_timesteps=False)
    assert larger.num_timesteps == 16


def test_an_unknown_group_is_refused(tmp_path: Any) -> None:
    _, path = saved(tmp_path)
    with pytest.raises(ValueError, match=r"got 'beacons'; did you mean 'beacon'"):
        load_with_slots(sb3.PPO, path, {"beacons": 9})


def test_masks_of_all_kinds_and_action_masks_grow_along() -> None:
    space = spaces.Dict(
        ally=spaces.Box(np.array([[-1.0], [-2.0]]), np.array([[3.0], [2.0]]), dtype=np.float64),
        ally_mask=spaces.Box(0, 1, (2, 1), np.int8),
        enemy=spaces.Box(-1, 1, (3, 2), np.float32),
        enemy_mask=spaces.MultiBinary(3),
        action_mask=spaces.MultiBinary([2, 4]),
    )
    schema = EntitySchema.from_space(space).with_slots({"ally": 5, "enemy": 7})
    action = PerEntity("ally", 2, 1, target="enemy", target_slots=3)
    bigger = _resize_action(action, {"ally": 5, "enemy": 7})
    assert bigger == PerEntity("ally", 5, 1, target="enemy", target_slots=7)
    parts = _resize(space, schema, bigger)
    assert parts["ally"] == spaces.Box(-2.0, 3.0, (5, 1), np.float64)
    assert parts["ally_mask"] == spaces.Box(0, 1, (5, 1), np.int8)
    assert parts["enemy_mask"] == spaces.MultiBinary(7)
    assert parts["action_mask"].shape == (5, 8)
    pointing = spaces.Dict({**space.spaces, "action_mask": spaces.MultiBinary(3)})
    choose = _resize_action(SelectEntity("enemy", 3), {"enemy": 7})
    assert _resize(pointing, schema, choose)["action_mask"] == spaces.MultiBinary(7)
    plain = PerEntity("ally", 2, 3)
    assert _resize_action(plain, {"ally": 4}) == PerEntity("ally", 4, 3)
    assert _resize_action(spaces.Discrete(3), {"ally": 4}) == spaces.Discrete(3)


def test_the_vector_environment_is_an_environment_like_others(tmp_path: Any) -> None:
    from gymnasium.vector import AutoresetMode

    from tests.entity_encoder.integrations.toys import beacons

    _, path = saved(tmp_path)
    env = GymnasiumVecEnv(beacons(2, AutoresetMode.SAME_STEP, slots=6))
    load_with_slots(sb3.PPO, path, {"beacon": 6}, env=env).learn(8, reset_num_timesteps=False)
