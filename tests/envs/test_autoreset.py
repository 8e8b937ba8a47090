"""Our array code against gymnasium's own vector environment of single environments."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from entity_encoder.envs.single import EntityEnv
from tests.envs.toys import Countdown, Lottery

E = 4


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(equal(one[k], other[k]) for k in one)
        )
    if isinstance(one, np.ndarray) and one.dtype == object:
        return other.dtype == object and all(map(equal, one, other))
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_results_equal_those_of_gymnasium_s_vector_environment(
    mode: AutoresetMode, limit: int | None
) -> None:
    ours = Lottery(E, autoreset_mode=mode, max_episode_steps=limit)
    theirs = SyncVectorEnv(
        [lambda: EntityEnv(Lottery, max_episode_steps=limit)] * E, autoreset_mode=mode
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    (a, _), (b, _) = ours.reset(seed=11), theirs.reset(seed=11)
    assert equal(a, b)
    seen = 0
    for _ in range(60):
        action = ours.action_space.sample()
        (a, *flags_a, infos_a), (b, *flags_b, infos_b) = ours.step(action), theirs.step(action)
        assert equal(a, b)
        assert all(map(equal, flags_a, flags_b))
        ended = flags_a[1] | flags_a[2]
        seen += int(ended.sum())
        if mode is AutoresetMode.SAME_STEP:
            assert equal(infos_a.get("final_obs"), infos_b.get("final_obs"))
            assert equal(infos_a.get("_final_obs"), infos_b.get("_final_obs"))
            # The score stands in the same place, and at the top as in the other modes.
            assert equal(infos_a.get("final_info"), infos_b.get("final_info"))
            assert equal(infos_a.get("_final_info"), infos_b.get("_final_info"))
            assert ("score" in infos_a) == bool(ended.any())
        else:
            assert infos_a.keys() == infos_b.keys()
            assert all(equal(infos_a[key], infos_b[key]) for key in infos_a)
        if mode is AutoresetMode.DISABLED and ended.any():
            (a, _), (b, _) = (e.reset(options={"reset_mask": ended}) for e in (ours, theirs))
            assert equal(a, b)
    assert seen > 20
    theirs.close()


def test_next_step_mode_spends_one_step_on_the_reset() -> None:
    env = Countdown(lengths=(3, 2, 1))
    env.reset(seed=0)
    rewards, ends = [], []
    for _ in range(6):
        _, reward, terminated, _, _ = env.step([0, 0, 0])
        rewards.append(reward.tolist())
        ends.append(terminated.tolist())
    assert np.array(rewards).T.tolist() == [[1, 2, 3, 0, 1, 2], [1, 2, 0, 1, 2, 0], [1, 0] * 3]
    assert np.array(ends).T.tolist() == [
        [False, False, True, False, False, False],
        [False, True, False, False, True, False],
        [True, False] * 3,
    ]


def test_same_step_mode_spends_none() -> None:
    env = Countdown(lengths=(3, 2, 1), autoreset_mode="SAME_STEP")
    env.reset(seed=0)
    rewards = [env.step([0, 0, 0])[1].tolist() for _ in range(6)]
    assert np.array(rewards).T.tolist() == [[1, 2, 3, 1, 2, 3], [1, 2] * 3, [1] * 6]


def test_tensor_output_has_final_observations_in_every_step() -> None:
    env = Countdown(lengths=(3, 2, 1), autoreset_mode="SAME_STEP", output="torch")
    env.reset(seed=0)
    for step in range(1, 4):
        observation, _, terminated, _, infos = env.step([0, 0, 0])
        assert infos["_final_obs"].tolist() == terminated.tolist()
        final = infos["final_obs"]["item"].amax(1)[:, 0]  # shows how many steps were taken
        lengths = np.array([3, 2, 1])
        expected = np.where(step % lengths == 0, lengths, step % lengths)
        assert final.tolist() == expected.tolist()
        assert observation["item"].amax(1)[:, 0].tolist() == (step % lengths).tolist()
