from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from tests.entity_encoder.integrations.toys import Beacon, beacons

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from entity_encoder.integrations.sb3 import GymnasiumVecEnv


def actions(steps: int, num_envs: int) -> np.ndarray:
    return np.random.default_rng(7).integers(3, size=(steps, num_envs))


def test_it_steps_like_sb3_s_own() -> None:
    ours = GymnasiumVecEnv(beacons(3, AutoresetMode.SAME_STEP))
    theirs = DummyVecEnv([Beacon] * 3)
    for env in (ours, theirs):
        env.seed(5)
    expected: Any = theirs.reset()
    got = ours.reset()
    truncations = 0
    for action in actions(14, 3):
        for key in expected:
            np.testing.assert_array_equal(got[key], expected[key], err_msg=key)
        expected, rewards, dones, infos = theirs.step(action)
        got, our_rewards, our_dones, our_infos = ours.step(action)
        np.testing.assert_array_equal(our_rewards, rewards)
        np.testing.assert_array_equal(our_dones, dones)
        for mine, other in zip(our_infos, infos, strict=True):
            truncated = other["TimeLimit.truncated"]
            assert mine.get("TimeLimit.truncated", False) == truncated
            truncations += truncated
            assert ("terminal_observation" in mine) == ("terminal_observation" in other)
            for key, value in mine.get("terminal_observation", {}).items():
                np.testing.assert_array_equal(value, other["terminal_observation"][key])
    assert truncations == 6  # 4 episodes of each of 3 environments, every second one truncated


def test_observations_do_not_share_memory_with_the_environments() -> None:
    envs = beacons(2, AutoresetMode.SAME_STEP)
    envs.copy = False
    env = GymnasiumVecEnv(envs)
    first: Any = env.reset()
    kept = {key: value.copy() for key, value in first.items()}
    env.step(np.zeros(2, dtype=np.int64))
    for key, value in kept.items():
        np.testing.assert_array_equal(first[key], value)


def test_episodes_are_counted_by_sb3_s_monitor_and_scores_arrive() -> None:
    envs: Any = pytest.importorskip("entity_encoder.envs")
    for output in ("numpy", "torch"):
        made = gymnasium.make_vec(
            "Entity/FloorIsLava-v0", 2, autoreset_mode="SameStep", output=output
        )
        env = VecMonitor(GymnasiumVecEnv(made))
        env.reset()
        _, rewards, dones, infos = env.step(np.array([1, 5]))
        assert dones.all()
        assert not isinstance(rewards, torch.Tensor)
        for info, reward in zip(infos, rewards, strict=True):
            assert info["episode"]["r"] == reward
            assert float(info["score"]) <= 1
            assert info["terminal_observation"]["lava"].shape == (7, 2)
    assert envs is not None


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_another_autoreset_mode_is_refused(mode: AutoresetMode) -> None:
    with pytest.raises(ValueError, match=r'must be .*SAME_STEP, got .*autoreset_mode="SameStep"'):
        GymnasiumVecEnv(beacons(2, mode))


def test_an_unknown_autoreset_mode_is_refused() -> None:
    envs = beacons(2, AutoresetMode.SAME_STEP)
    envs.metadata = {}
    with pytest.raises(ValueError, match=r"got None"):
        GymnasiumVecEnv(envs)


def test_attributes_and_methods_are_those_of_the_vector_environment() -> None:
    env = GymnasiumVecEnv(beacons(3, AutoresetMode.SAME_STEP))
    assert env.get_attr("num_envs") == [3, 3, 3]
    assert env.get_attr("num_envs", indices=[0, 2]) == [3, 3]
    env.set_attr("label", "x")
    assert env.get_attr("label", 1) == ["x"]
    assert env.env_is_wrapped(gymnasium.Wrapper) == [False, False, False]
    assert not env.has_attr("action_masks")
    assert not env.has_attr("no_such_thing")
    env.close()


def test_action_masks_are_served_for_chosen_environments() -> None:
    env = GymnasiumVecEnv(beacons(3, AutoresetMode.SAME_STEP, action="point"))
    observation: Any = env.reset()
    assert env.has_attr("action_masks")
    masks = env.env_method("action_masks", indices=[2, 0])
    np.testing.assert_array_equal(masks, observation["beacon_mask"][[2, 0]] == 1)
    (call,) = env.get_attr("action_masks", 1)
    np.testing.assert_array_equal(call(), observation["beacon_mask"][1] == 1)


def test_pictures_are_drawn() -> None:
    pytest.importorskip("entity_encoder.envs")
    made = gymnasium.make_vec(
        "Entity/FloorIsLava-v0", 2, autoreset_mode="SameStep", render_mode="rgb_array"
    )
    env = GymnasiumVecEnv(made)
    env.reset()
    images: Any = env.get_images()
    assert [np.ndim(image) for image in images] == [3, 3]
