import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import error
from gymnasium.vector import AsyncVectorEnv

import entity_encoder.envs  # noqa: F401  (registers the tasks)
from entity_encoder.envs.single import EntityEnv
from tests.envs.toys import Countdown, Lottery


def test_single_environment_follows_the_batch_of_the_same_seed() -> None:
    batch, single = Lottery(9), EntityEnv(Lottery)
    many, _ = batch.reset(seed=20)
    one, _ = single.reset(seed=24)
    for _ in range(50):
        assert all(np.array_equal(many[key][4], one[key]) for key in many)
        action = batch.reference_policy(batch.state)
        assert single.reference_action() == action[4]
        many, reward, terminated, *_ = batch.step(action)
        one, own_reward, own_terminated, _, info = single.step(int(action[4]))
        assert (own_reward, own_terminated) == (reward[4], terminated[4])
        assert ("score" in info) == own_terminated
        if own_terminated:
            one, _ = single.reset()
            many, *_ = batch.step(batch.action_space.sample())
            many = {key: np.array(value) for key, value in many.items()}


def test_results_are_plain_python_values() -> None:
    env = EntityEnv(Countdown, lengths=(1,))
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(0)
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert env.observation_space.contains(observation)
    assert info["score"] == pytest.approx(1 / 6)


def test_reset_without_a_seed_is_random_at_first_and_continues_later() -> None:
    one, other = EntityEnv(Lottery), EntityEnv(Lottery)
    assert not np.array_equal(one.reset()[0]["noise"], other.reset()[0]["noise"])
    one.reset(seed=5)
    other.reset(seed=5)
    for _ in range(3):
        assert np.array_equal(one.reset()[0]["noise"], other.reset()[0]["noise"])


def test_state_resumes_and_pickling_continues() -> None:
    env, later = EntityEnv(Lottery, ending=0.0), EntityEnv(Lottery, ending=0.0)
    env.reset(seed=1)
    saved = env.get_state()
    copy = pickle.loads(pickle.dumps(env))
    later.set_state(saved)
    action = env.reference_action()
    results = [each.step(action) for each in (env, copy, later)]
    for other in results[1:]:
        assert all(np.array_equal(results[0][0][k], other[0][k]) for k in other[0])
        assert results[0][1:] == other[1:]


def test_usual_loop_samples_only_what_is_there() -> None:
    env = EntityEnv(Lottery, ending=0.0)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(200):
        action = env.action_space.sample()
        assert observation["ball_mask"][action] == 1
        observation, _, terminated, _, _ = env.step(action)
        if terminated:
            observation, _ = env.reset()


def test_absent_entity_and_finished_episode_are_refused() -> None:
    env = EntityEnv(Lottery, ending=0.0)
    observation, _ = env.reset(seed=0)
    absent = int(observation["ball_mask"].argmin())
    with pytest.raises(ValueError, match=f"must point at a present ball, got {absent} in env 0"):
        env.step(absent)
    short = EntityEnv(Countdown, lengths=(1,))
    with pytest.raises(error.ResetNeeded, match="must be reset before"):
        short.step(0)
    short.reset(seed=0)
    short.step(0)
    with pytest.raises(error.ResetNeeded, match="must not follow the end of an episode"):
        short.step(0)


def test_time_limit_is_the_task_s_own() -> None:
    env = gymnasium.make("Entity/Minefield-v0", time_limit=4)
    env.reset(seed=0)
    shares = [float(env.step(0)[0]["step"][0]) for _ in range(3)]
    assert shares == [0.25, 0.5, 0.75]
    *_, truncated, info = env.step(0)
    assert truncated
    assert "score" in info


def test_time_limit_of_make_truncates_from_outside() -> None:
    env = gymnasium.make("Entity/Minefield-v0", max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(2)] == [False, True]


def test_schema_and_class_metadata_are_there() -> None:
    env = EntityEnv(Lottery)
    assert env.entity_schema == Lottery().entity_schema
    assert EntityEnv.metadata["render_modes"] == ["human", "rgb_array"]
    assert env.spec is None


def test_rendering_is_that_of_the_task() -> None:
    env = EntityEnv(Lottery, render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert frame is not None
    assert frame.shape == (4, 6, 3)
    env.close()


def test_environments_run_in_spawned_processes() -> None:
    def make() -> gymnasium.Env:
        return gymnasium.make("entity_encoder.envs:Entity/CherryPick-v0", max_cherries=5)

    apart = AsyncVectorEnv([make], context="spawn")
    together = gymnasium.make_vec("Entity/CherryPick-v0", num_envs=1, max_cherries=5)
    try:
        for (a, _), (b, _) in [(apart.reset(seed=3), together.reset(seed=3))]:
            assert all(np.array_equal(a[key], b[key]) for key in b)
    finally:
        apart.close()
