from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder import EntitySchema, PerEntity, SelectEntity
from tests.entity_encoder.integrations.toys import SMALL, Beacon, beacons

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

from stable_baselines3.common.vec_env import DummyVecEnv

from entity_encoder.integrations.sb3 import (
    ActionMasks,
    GymnasiumVecEnv,
    action_masks,
    policy_kwargs,
)

TWO = EntitySchema.from_space(
    spaces.Dict(
        ally=spaces.Box(-1, 1, (3, 2)),
        ally_mask=spaces.MultiBinary(3),
        enemy=spaces.Box(-1, 1, (2, 2)),
        enemy_mask=spaces.MultiBinary(2),
    )
)
STATE = {"ally_mask": np.array([1, 0, 1]), "enemy_mask": np.array([0, 1])}


def test_a_mask_in_the_observation_is_served() -> None:
    env = ActionMasks(Beacon(legal=True))
    observation, _ = env.reset(seed=1)
    np.testing.assert_array_equal(env.action_masks(), observation["action_mask"] == 1)
    observation, *_ = env.step(0)
    np.testing.assert_array_equal(env.action_masks(), observation["action_mask"] == 1)


def test_pointing_is_legal_at_present_targets_only() -> None:
    space = SelectEntity("ally", 3)
    np.testing.assert_array_equal(action_masks(space, TWO, STATE), [True, False, True])
    closed = {**STATE, "action_mask": np.array([0, 1, 1])}
    np.testing.assert_array_equal(action_masks(space, TWO, closed), [False, False, True])


def test_an_absent_actor_keeps_one_choice() -> None:
    space = PerEntity("ally", 3, 2, target="enemy", target_slots=2)
    # Choices: two moves, then enemies 0 (absent) and 1 (present), for allies 0, 1 (absent), 2.
    expected = [[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 0, 1]]
    np.testing.assert_array_equal(action_masks(space, TWO, STATE), np.ravel(expected))
    told = {**STATE, "action_mask": np.array([[0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 0]])}
    expected = [[0, 1, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_array_equal(action_masks(space, TWO, told), np.ravel(expected))


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 1, 1], [1, 0, 0, 1, 1]),
        (spaces.MultiDiscrete([2, 2]), [[1, 0], [0, 1]], [1, 0, 0, 1]),
        (spaces.MultiBinary(2), [1, 0], [1, 1, 1, 0]),  # off and on of each bit
    ],
    ids=["one list", "a table", "bits"],
)
def test_masks_take_the_flat_form(space: Any, given: Any, expected: Any) -> None:
    observation = {**STATE, "action_mask": np.array([given])}
    np.testing.assert_array_equal(action_masks(space, TWO, observation), [expected])


def test_a_presence_column_says_who_is_there() -> None:
    schema = EntitySchema.from_space(
        spaces.Dict(car=spaces.Box(-1, 1, (3, 1))),
        features={"car": ("presence",)},
        presence={"car": "presence"},
    )
    observation = {"car": np.array([[0.0], [1.0], [0.0]])}
    legal = action_masks(SelectEntity("car", 3), schema, observation)
    np.testing.assert_array_equal(legal, [False, True, False])


@pytest.mark.parametrize(
    ("space", "given", "place"),
    [
        (spaces.Discrete(3), np.array([[1, 0, 0], [0, 0, 0]]), "environment 1, decision 0"),
        (spaces.MultiDiscrete([2, 1]), np.array([1, 1, 0]), "the environment, decision 1"),
    ],
    ids=["batch", "single"],
)
def test_no_legal_action_is_refused(space: Any, given: np.ndarray, place: str) -> None:
    with pytest.raises(ValueError, match=f"at least one legal choice.*{place}; MaskablePPO"):
        action_masks(space, TWO, {**STATE, "action_mask": given})


def test_an_observation_without_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must hold the key 'action_mask'.*use PPO"):
        action_masks(spaces.Discrete(3), TWO, STATE)


def make_env(kind: str) -> Any:
    if kind == "single":
        return DummyVecEnv([lambda: ActionMasks(Beacon(legal=True, junk=np.nan))] * 2)
    return GymnasiumVecEnv(beacons(2, AutoresetMode.SAME_STEP, legal=True, junk=np.nan))


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_maskable_ppo_never_acts_illegally(kind: str, tmp_path: Any) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from sb3_contrib.common.maskable.utils import get_action_masks

    env = make_env(kind)
    model = contrib.MaskablePPO(
        "MultiInputPolicy",
        env,
        policy_kwargs=policy_kwargs(**SMALL),
        n_steps=16,
        batch_size=16,
        n_epochs=2,
        seed=2,
    )
    model.learn(64)
    buffer = model.rollout_buffer
    taken = buffer.actions.astype(int).ravel()
    legal = buffer.action_masks.reshape(len(taken), 3)
    assert (legal.sum(1) == 2).all()  # the toy forbids one of three
    assert (legal[np.arange(len(taken)), taken] == 1).all()

    model.save(tmp_path / "model")
    loaded = contrib.MaskablePPO.load(tmp_path / "model")
    observation, masks = env.reset(), get_action_masks(env)
    chosen, _ = model.predict(observation, action_masks=masks, deterministic=True)
    again, _ = loaded.predict(observation, action_masks=masks, deterministic=True)
    np.testing.assert_array_equal(again, chosen)


@pytest.mark.parametrize("junk", [1e30, np.nan])
def test_what_absent_slots_hold_changes_no_learning_of_maskable_ppo(junk: float) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    results = []
    for content in (0.0, junk):
        envs = beacons(2, AutoresetMode.SAME_STEP, legal=True, junk=content)
        model = contrib.MaskablePPO(
            "MultiInputPolicy",
            GymnasiumVecEnv(envs),
            policy_kwargs=policy_kwargs(**SMALL),
            n_steps=8,
            batch_size=8,
            n_epochs=2,
            seed=2,
        )
        results.append(model.learn(32).policy.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_the_wrapper_finds_the_environment_s_schema() -> None:
    class Described(Beacon):
        entity_schema = EntitySchema.from_space(Beacon().observation_space)

    env = ActionMasks(gymnasium.wrappers.TimeLimit(Described(action="point"), 9))
    observation, _ = env.reset(seed=1)
    np.testing.assert_array_equal(env.action_masks(), observation["beacon_mask"] == 1)
