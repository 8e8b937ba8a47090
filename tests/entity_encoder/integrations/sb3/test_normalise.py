from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder import EgoFrame, EntitySchema
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe, with_junk

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv, sync_envs_normalization

from entity_encoder.integrations.sb3 import EntityVecNormalize, policy_kwargs

sb3: Any = stable_baselines3


def make(num_envs: int = 3, junk: float = np.nan, **options: Any) -> EntityVecNormalize:
    return EntityVecNormalize(DummyVecEnv([lambda: Beacon(junk=junk)] * num_envs), **options)


def step(env: EntityVecNormalize, steps: int) -> list[dict[str, np.ndarray]]:
    """Return the observations as the environments delivered them."""
    env.seed(4)
    env.reset()
    raw: list[Any] = [env.get_original_obs()]
    for _ in range(steps):
        env.step(np.zeros(env.num_envs, dtype=np.int64))
        raw.append(env.get_original_obs())
    return raw


def test_statistics_are_those_of_present_entities() -> None:
    env = make()
    raw = step(env, 9)
    rows = np.concatenate([obs["beacon"][obs["beacon_mask"] == 1] for obs in raw])
    # The first batch meets SB3's own starting point: one observation of weight 1e-4.
    np.testing.assert_allclose(env.obs_rms["beacon"].mean, rows.mean(0), atol=1e-4)
    np.testing.assert_allclose(env.obs_rms["beacon"].var, rows.var(0), atol=1e-4)
    assert set(env.obs_rms) == {"beacon", "rock", "time"}


def test_present_entities_are_scaled_absent_ones_zero_and_masks_left_alone() -> None:
    env = make()
    raw = step(env, 9)[-1]
    out = env.normalize_obs(raw)
    mean, var = env.obs_rms["beacon"].mean, env.obs_rms["beacon"].var
    there = raw["beacon_mask"] == 1
    expected = (raw["beacon"][there] - mean) / np.sqrt(var + 1e-8)
    np.testing.assert_allclose(out["beacon"][there], expected, rtol=1e-5)
    assert (out["beacon"][~there] == 0).all()
    np.testing.assert_array_equal(out["beacon_mask"], raw["beacon_mask"])
    again = env.unnormalize_obs(out)
    np.testing.assert_allclose(again["beacon"][there], raw["beacon"][there], atol=1e-5)


@pytest.mark.parametrize("junk", [0.0, 1e30])
def test_what_absent_slots_hold_changes_nothing(junk: float) -> None:
    env = make()
    step(env, 9)
    observation = observe(7, junk=np.nan)
    expected = env.normalize_obs(observation)
    got = env.normalize_obs(with_junk(observation, junk))
    for key in expected:
        np.testing.assert_array_equal(got[key], expected[key])


def test_rewards_are_scaled_as_by_the_original() -> None:
    env = make()
    step(env, 20)
    assert env.ret_rms.var != 1
    np.testing.assert_allclose(
        env.normalize_reward(np.ones(1)), 1 / np.sqrt(env.ret_rms.var + 1e-8), rtol=1e-6
    )


def test_last_observations_of_episodes_are_normalised_too() -> None:
    env = make(1)
    env.reset()
    for _ in range(3):
        _, _, dones, infos = env.step(np.zeros(1, dtype=np.int64))
    assert dones[0]
    final = infos[0]["terminal_observation"]
    assert np.isfinite(final["beacon"]).all()  # absent slots held NaN


def test_without_normalisation_observations_pass() -> None:
    env = make(norm_obs=False)
    raw = step(env, 1)[-1]
    for out in (env.normalize_obs(raw), env.unnormalize_obs(raw)):
        np.testing.assert_array_equal(out["beacon"], raw["beacon"])


def test_bytes_become_floats_in_the_space_too() -> None:
    class Bytes(Beacon):
        def __init__(self) -> None:
            super().__init__()
            parts = dict(self.observation_space.spaces)
            parts["beacon"] = spaces.Box(0, 255, (5, 2), np.uint8)
            self.observation_space = spaces.Dict(parts)

    inner = DummyVecEnv([Bytes])
    env = EntityVecNormalize(inner)
    spaces_: list[Any] = [env.observation_space, inner.observation_space]
    assert [space["beacon"].dtype for space in spaces_] == [np.float32, np.uint8]
    assert env.reset()["beacon"].dtype == np.float32


def test_presence_and_categories_are_left_alone() -> None:
    schema = EntitySchema.from_space(
        spaces.Dict(unit=spaces.Box(-9, 9, (4, 3), np.float32)),
        features={"unit": ("there", "kind", "x")},
        presence={"unit": "there"},
        categories={"unit": {"kind": 3}},
    )

    class Units(Beacon):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = schema.space(-9, 9)

        def _draw(self) -> dict[str, np.ndarray]:
            rng = self.np_random
            kind, x = rng.integers(3, size=4), rng.normal(size=4)
            there = np.array([1, 0, 1, 0])
            return {"unit": np.stack([there, kind, x], 1).astype(np.float32)}

    env = EntityVecNormalize(DummyVecEnv([Units]), schema=schema)
    out = env.reset()["unit"]
    raw: Any = env.get_original_obs()
    np.testing.assert_array_equal(out[0, [0, 2], :2], raw["unit"][0, [0, 2], :2])
    assert (out[0, [1, 3]] == 0).all()
    back = env.unnormalize_obs({"unit": out})["unit"]
    np.testing.assert_allclose(back[0, [0, 2]], raw["unit"][0, [0, 2]], atol=1e-5)


def test_it_learns_saves_and_loads_like_the_original(tmp_path: Any) -> None:
    env = make()
    kwargs = policy_kwargs(**SMALL)
    model = sb3.PPO("MultiInputPolicy", env, policy_kwargs=kwargs, n_steps=8, batch_size=8, seed=1)
    model.learn(24)
    assert model.get_vec_normalize_env() is env
    env.save(tmp_path / "statistics.pkl")
    loaded = EntityVecNormalize.load(
        tmp_path / "statistics.pkl", DummyVecEnv([lambda: Beacon(junk=np.nan)])
    )
    observation = observe(5, junk=np.nan)
    for key, value in env.normalize_obs(observation).items():
        np.testing.assert_array_equal(loaded.normalize_obs(observation)[key], value)
    fresh = make()
    sync_envs_normalization(env, fresh)
    np.testing.assert_array_equal(fresh.obs_rms["beacon"].mean, env.obs_rms["beacon"].mean)


def test_masks_among_the_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must leave masks alone, got \['rock_mask'\].*'time'"):
        make(norm_obs_keys=["beacon", "rock_mask"])


def test_a_frame_is_refused_with_the_alternative() -> None:
    space = Beacon(slots=1).observation_space
    schema = EntitySchema.from_space(space, positions={"beacon": ("f0",)}, frame=EgoFrame("beacon"))
    with pytest.raises(ValueError, match=r"must have no frame.*NormalisationCallback"):
        EntityVecNormalize(DummyVecEnv([lambda: Beacon(slots=1)]), schema=schema)
