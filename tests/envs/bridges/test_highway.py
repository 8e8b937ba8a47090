"""highway-env as entities, against its own observation and its own simulator."""

import copy
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

pytest.importorskip(
    "highway_env", reason="highway-env is missing: pip install entity-encoder[envs]"
)

import entity_encoder.envs.bridges.highway as bridge
from entity_encoder.agents.environments import find_schema
from entity_encoder.envs.bridges.highway import HighwayEntities, make_highway
from entity_encoder.envs.bridges.kinematics import NumpyKinematics
from entity_encoder.envs.bridges.registration import HIGHWAY_IDS
from entity_encoder.schema import EgoFrame

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is out of date:DeprecationWarning"  # highway-env has newer versions of some ids
)


EVERY_FEATURE = [
    *("presence", "x", "y", "vx", "vy", "heading", "cos_h", "sin_h"),
    *("cos_d", "sin_d", "long_off", "lat_off", "ang_off"),
]


def kinematics(**options: Any) -> dict[str, Any]:
    """Return a fresh config: highway-env keeps and edits the one it is given."""
    return {"observation": {"type": "Kinematics", **options}}


def quick(**config: Any) -> dict[str, Any]:
    """Return a config with few vehicles and few frames a second: steps cost a tenth."""
    return {"simulation_frequency": 5, "vehicles_count": 9, "initial_vehicle_count": 5} | config


def play(env: gymnasium.Env[Any, Any], seed: int, steps: int) -> Iterator[tuple[Any, ...]]:
    """Take seeded random actions; yield what `reset` and `step` returned, until an episode ends."""
    yield env.reset(seed=seed)
    env.action_space.seed(seed)  # after the reset, which makes the space anew
    for _ in range(steps):
        result = env.step(env.action_space.sample())
        yield result
        if result[2] or result[3]:
            return


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{env_id: (env_id, {}) for env_id in ("exit-v1", "intersection-v1", "roundabout-v1")},
    "every feature, obstacles, seeing behind": (
        "merge-v0",
        kinematics(
            features=EVERY_FEATURE, vehicles_count=9, see_behind=True, observe_intentions=True
        ),
    ),
    "columns in another order, absolute, raw": (
        "intersection-v0",
        kinematics(features=EVERY_FEATURE[::-1], absolute=True, normalize=False, vehicles_count=7),
    ),
    "without obstacles, unclipped": (
        "merge-v0",
        kinematics(include_obstacles=False, clip=False, vehicles_count=11),
    ),
    "own ranges": (
        "highway-fast-v0",
        kinematics(features_range={"x": [-70, 90], "vy": [-3, 5], "heading": [-1, 1]}),
    ),
    "one vehicle": ("highway-fast-v0", kinematics(vehicles_count=1)),
    "presence alone": ("highway-fast-v0", kinematics(features=["presence"], vehicles_count=3)),
    "more slots than vehicles": (
        "highway-fast-v0",
        {"vehicles_count": 4, "duration": 2, **kinematics(vehicles_count=13)},
    ),
    "shuffled": ("highway-fast-v0", kinematics(order="shuffled", vehicles_count=6)),
}


@pytest.mark.filterwarnings("ignore:order='shuffled' picks")
@pytest.mark.parametrize("case", CASES)
def test_numpy_observations_equal_the_original_s_bit_by_bit(case: str) -> None:
    env_id, config = CASES[case]
    config = quick(**config)
    fast = make_highway(env_id, numpy_observe=True, config=copy.deepcopy(config))
    slow = make_highway(env_id, numpy_observe=False, config=copy.deepcopy(config))
    for a, b in zip(play(fast, 3, 6), play(slow, 3, 6), strict=True):
        assert len(a) == 2 or a[1:4] == b[1:4]
        assert a[0].keys() == b[0].keys()
        for key in a[0]:
            np.testing.assert_array_equal(a[0][key], b[0][key], strict=True)
        kind = fast.unwrapped.observation_type  # type: ignore[attr-defined]
        assert isinstance(kind.observe, NumpyKinematics)
        if case != "shuffled":  # the raw arrays too, where obstacles leave NaN
            np.testing.assert_array_equal(kind.observe(), type(kind).observe(kind), strict=True)


def test_rows_are_the_vehicles_of_the_simulator() -> None:
    options = kinematics(vehicles_count=7, normalize=False, features=["x", "presence", "vy", "y"])
    env = make_highway("highway-v0", config=quick(vehicles_count=15, **options))
    for observation, *_ in play(env, seed=5, steps=4):
        state: Any = env.unwrapped
        ego = state.vehicle
        np.testing.assert_allclose(
            observation["ego"][0], [ego.position[0], ego.velocity[1], ego.position[1]], rtol=1e-6
        )
    # Those ahead, nearest along the lane first; at most two lengths of a car behind.
    ahead = [v for v in state.road.vehicles if v is not ego]
    distance = {v: ego.lane_distance_to(v) for v in ahead}
    seen = sorted(
        (v for v in ahead if distance[v] > -2 * ego.LENGTH), key=lambda v: abs(distance[v])
    )
    expected = [[*(v.position - ego.position), v.velocity[1] - ego.velocity[1]] for v in seen[:6]]
    np.testing.assert_allclose(
        observation["vehicle"], np.array(expected)[:, [0, 2, 1]], rtol=1e-4, atol=1e-4
    )
    assert observation["vehicle_mask"].tolist() == [1] * 6


def test_mask_follows_presence_and_absent_rows_are_zero() -> None:
    config = quick(vehicles_count=4, **kinematics(vehicles_count=13))
    env = make_highway("highway-fast-v0", config=config)
    observation, _ = env.reset(seed=7)
    ahead = len(observation["vehicle_mask"].nonzero()[0])
    assert 0 < ahead <= 4
    assert observation["vehicle_mask"].tolist() == [1] * ahead + [0] * (12 - ahead)
    assert (observation["vehicle"][ahead:] == 0).all()
    assert (observation["vehicle"][:ahead] != 0).any(axis=1).all()


def test_a_hole_in_the_rows_is_a_hole_in_the_mask() -> None:
    env = make_highway("highway-fast-v0")
    rows = np.array(
        [[1, 0.1, 0.2, 0.3, 0.4], [1, 5, 6, 7, 8], [0, 9, 9, 9, 9], [1, 1, 2, np.nan, 4], [0] * 5],
        dtype=np.float32,
    )
    observation = env.observation(rows)
    assert observation["vehicle_mask"].tolist() == [1, 0, 1, 0]
    assert observation["vehicle"].tolist() == [[5, 6, 7, 8], [0] * 4, [1, 2, 0, 4], [0] * 4]
    np.testing.assert_array_equal(observation["ego"], rows[:1, 1:])


def test_the_ego_as_a_flag_is_a_column_of_the_common_group() -> None:
    env = make_highway("highway-fast-v0", ego="flag")
    observation, _ = env.reset(seed=2)
    apart, _ = make_highway("highway-fast-v0").reset(seed=2)
    assert env.entity_schema.groups[0].features == ("x", "y", "vx", "vy", "is_ego")
    assert observation["vehicle"][:, -1].tolist() == [1, 0, 0, 0, 0]
    rows = np.concatenate([apart["ego"], apart["vehicle"]])
    np.testing.assert_array_equal(observation["vehicle"][:, :-1], rows)
    assert observation["vehicle_mask"].tolist() == [1, *apart["vehicle_mask"]]


def test_positions_are_declared_where_they_share_a_frame() -> None:
    def positions(**options: Any) -> list[tuple[str, ...]]:
        absolute = options.pop("absolute", False)
        config = quick(**kinematics(absolute=absolute))
        env = make_highway("highway-fast-v0", config=config, **options)
        return [group.positions for group in env.entity_schema.groups]

    assert positions() == [(), ("x", "y")]  # the observer is absolute, the others relative
    assert positions(ego="flag") == [()]
    assert positions(absolute=True) == [("x", "y")] * 2
    assert positions(absolute=True, ego="flag") == [("x", "y")]
    assert positions(absolute=True, frame=EgoFrame("ego")) == [("x", "y")] * 2
    assert make_highway("exit-v1", config=quick()).entity_schema.group("vehicle").directions == (
        *("vx", "vy"),
        *("cos_h", "sin_h"),
    )


def test_one_vehicle_fits_the_space() -> None:
    env = make_highway("highway-fast-v0", config=kinematics(vehicles_count=1))
    for observation, *_ in play(env, seed=1, steps=3):
        assert {key: value.shape for key, value in observation.items()} == {
            "ego": (1, 4),
            "ego_mask": (1,),
        }
        assert observation in env.observation_space


@pytest.mark.parametrize("env_id", HIGHWAY_IDS)
def test_every_registered_id_keeps_its_actions_and_stays_in_its_space(env_id: str) -> None:
    env = gymnasium.make(f"Bridge/{env_id}", config=quick(), disable_env_checker=True)
    original = gymnasium.make(env_id, config=quick(), disable_env_checker=True)
    assert env.action_space == original.action_space
    assert env.get_wrapper_attr("entity_schema").space() == env.observation_space
    for observation, *_ in play(env, seed=4, steps=3):
        assert observation in env.observation_space


@pytest.mark.filterwarnings("ignore::UserWarning")  # unbounded spaces, which are highway-env's own
def test_gymnasium_s_checker_is_content() -> None:
    env = make_highway("highway-fast-v0", config=quick(vehicles_count=3))
    check_env(env, skip_render_check=True)


def test_a_batch_of_factories_and_make_vec_are_vector_environments() -> None:
    factories = [partial(make_highway, "highway-fast-v0", config=quick()) for _ in range(2)]
    envs: Any = gymnasium.vector.SyncVectorEnv(factories)
    registered: Any = gymnasium.make_vec("Bridge/highway-fast-v0", num_envs=2, config=quick())
    actions = np.array([1, 3])
    a, b = envs.reset(seed=8)[0], registered.reset(seed=8)[0]
    for _ in range(3):
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
        a, b = envs.step(actions)[0], registered.step(actions)[0]
    assert a["vehicle"].shape == (2, 4, 4)
    schema = envs.envs[0].entity_schema
    assert schema.slots == 5
    assert find_schema(envs) == find_schema(registered) == schema


def test_the_end_of_duration_truncates_and_a_crash_terminates() -> None:
    short = make_highway("highway-fast-v0", config={"duration": 3, "vehicles_count": 1})
    assert [entry[2:4] for entry in play(short, 0, 9) if len(entry) == 5] == [
        (False, False)
    ] * 2 + [(False, True)]
    env = make_highway("highway-fast-v0", config=quick(vehicles_density=3, lanes_count=1))
    env.reset(seed=0)
    for _ in range(40):
        *_, terminated, truncated, info = env.step(3)  # faster
        if terminated or truncated:
            break
    assert terminated
    assert info["crashed"]


def test_copies_observe_their_own_vehicles() -> None:
    env = make_highway("highway-fast-v0", numpy_observe=True)
    env.reset(seed=6)
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        inner: Any = twin.unwrapped
        kind = inner.observation_type
        assert kind.observe.kind is kind
        first = env.unwrapped.observation_type.observe()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(kind.observe(), first)
        twin.step(3)
        assert not np.array_equal(kind.observe(), first)
        np.testing.assert_array_equal(env.unwrapped.observation_type.observe(), first)  # type: ignore[attr-defined]


def test_numpy_is_chosen_for_known_versions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_highway("highway-fast-v0").numpy_observe
    monkeypatch.setattr(bridge, "version_of", lambda package: "99.1")
    assert not make_highway("highway-fast-v0").numpy_observe
    assert make_highway("highway-fast-v0", numpy_observe=True).numpy_observe


def test_shuffled_vehicles_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="order='shuffled' picks vehicles in no order of distance"):
        make_highway("highway-fast-v0", config=kinematics(order="shuffled"))


class TestErrors:
    def test_features_without_presence(self) -> None:
        with pytest.raises(ValueError, match=r"must contain 'presence'.*got \['x', 'y'\]"):
            make_highway("highway-fast-v0", config=kinematics(features=["x", "y"]))

    def test_scaled_presence(self) -> None:
        config = kinematics(features_range={"presence": [0, 4]})
        with pytest.raises(ValueError, match=r"must leave 'presence' alone.*got \[0, 4\]"):
            make_highway("highway-fast-v0", config=config)

    def test_another_type_of_observation(self) -> None:
        with pytest.raises(ValueError, match=r"type must be one of .* got OccupancyGridObs"):
            make_highway("highway-fast-v0", config={"observation": {"type": "OccupancyGrid"}})

    def test_another_library(self) -> None:
        with pytest.raises(TypeError, match="env must be one of highway-env, got <CartPole"):
            HighwayEntities(gymnasium.make("CartPole-v1"))

    def test_unknown_place_of_the_ego(self) -> None:
        with pytest.raises(ValueError, match=r"ego must be one of .* got 'column'"):
            make_highway("highway-fast-v0", ego="column")  # type: ignore[arg-type]

    def test_a_config_that_changes_the_observation(self) -> None:
        env = make_highway("highway-fast-v0")
        with pytest.raises(ValueError, match=r"must keep features .* vehicles_count 5, got .* 8"):
            env.reset(options={"config": kinematics(vehicles_count=8)})

    def test_a_wrapped_observation(self) -> None:
        env = gymnasium.wrappers.FlattenObservation(gymnasium.make("highway-fast-v0"))
        with pytest.raises(ValueError, match=r"must be a Box of shape \(5, 5\), got Box.*\(25,\)"):
            HighwayEntities(env)

    def test_another_layout_names_the_versions(self) -> None:
        env = make_highway("highway-fast-v0")
        with pytest.raises(
            ValueError,
            match=r"shape \(5, 5\), got \(5, 6\); highway-env [\d.]+ is installed, "
            r"versions known to work: .*1\.12\.1",
        ):
            env.observation(np.ones((5, 6), np.float32))
        with pytest.raises(ValueError, match=r"observer in row 0, got presence 0; highway-env"):
            env.observation(np.zeros((5, 5), np.float32))

    def test_a_missing_package_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "highway_env", None)
        with pytest.raises(ImportError, match=r'highway-env: pip install "entity-encoder\[envs\]"'):
            make_highway("highway-fast-v0")


def test_a_space_of_masks_and_floats() -> None:
    space = make_highway("merge-v0").observation_space
    assert isinstance(space, spaces.Dict)
    assert {key: part.dtype for key, part in space.items()} == {
        "ego": np.float32,
        "ego_mask": np.int8,
        "vehicle": np.float32,
        "vehicle_mask": np.int8,
    }
