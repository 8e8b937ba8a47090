"""Each broken promise is planted into an environment that keeps all of them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.checker import EnvReport, check_entity_env
from entity_encoder.envs.driver import Driver
from entity_encoder.envs.single import EntityEnv
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import SelectEntity
from tests.envs.test_vector import Masked
from tests.envs.toys import Countdown, Lottery

MODES = list(AutoresetMode)


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("mode", MODES)
def test_sound_environments_pass_in_every_mode(mode: AutoresetMode, output: str) -> None:
    report = check_entity_env(Lottery(3, autoreset_mode=mode, output=output), steps=40)
    assert report.steps == 120
    assert report.episodes > 10
    assert report.holes
    assert report.empty_sets
    assert 1 < report.entities < 9


def test_sound_single_environments_pass() -> None:
    assert isinstance(check_entity_env(EntityEnv(Lottery), steps=30), EnvReport)
    assert check_entity_env(EntityEnv(Lottery, per_entity=True), steps=30).steps == 30
    report = check_entity_env(EntityEnv(Countdown, lengths=(3,)), steps=8)
    assert (report.episodes, report.holes) == (2, False)


def test_action_masks_are_obeyed() -> None:
    check_entity_env(Masked(), steps=9)


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a gymnasium\.Env or VectorEnv, got str"):
        check_entity_env("Entity/Minefield-v0")


def broken(message: str, env: Any, **options: Any) -> None:
    with pytest.raises(ValueError, match=message):
        check_entity_env(env, steps=20, **options)


class Wrong(Lottery):
    """A Lottery with one fault in its observation."""

    def __init__(self, fault: Any, **options: Any) -> None:
        super().__init__(3, **options)
        self.fault = fault

    def _observe(self, state: State) -> State:
        observation = super()._observe(state)
        self.fault(observation)
        return observation


def put(key: str, change: Any) -> Any:
    def fault(observation: State) -> None:
        observation[key] = change(observation[key])

    return fault


def test_missing_and_unknown_keys_are_found() -> None:
    broken("must have the keys", Wrong(lambda o: o.pop("noise")))
    broken("must have the keys .* got .*'other'", Wrong(lambda o: o.update(other=o["noise"])))


def test_wrong_shape_and_dtype_are_found() -> None:
    broken(r"\['ball'\] must have shape \(3, 7, 2\)", Wrong(put("ball", lambda x: x[:, :, :1])))
    broken(r"\['noise'\] must have .* dtype float32", Wrong(put("noise", torch.Tensor.double)))


def test_numbers_outside_the_bounds_are_found() -> None:
    broken(r"\['noise'\] must lie in Box\(-9.0, 9.0", Wrong(put("noise", lambda x: x + 30)))


def test_values_in_absent_rows_are_found_unless_allowed() -> None:
    def inverted(observation: State) -> None:
        observation["ball_mask"] = ~observation["ball_mask"]

    junk = put("ball", lambda x: x + 0.001)
    broken(r"rows of absent entities must be 0, .* group 'ball', env 0, slot", Wrong(junk))
    check_entity_env(Wrong(junk), steps=5, padding_is_zero=False)
    broken("is the mask inverted", Wrong(inverted, ending=1.0))


def test_states_without_legal_action_are_found() -> None:
    class Stuck(Masked):
        def observe(self, state: State) -> State:
            return {**super().observe(state), "action_mask": torch.zeros(3, 2, dtype=torch.bool)}

        def step(self, actions: Any) -> Any:
            self._legal = (None, "")
            return super().step(actions)

    broken(
        "must have a legal action, got none in env 0 at step 0", Stuck(autoreset_mode="DISABLED")
    )


def test_other_slots_in_the_action_space_are_found() -> None:
    env = Lottery(3)
    env.single_action_space = SelectEntity("ball", 6)
    broken("must have as many slots as group 'ball', 7, got 6", env)


def test_missing_autoreset_mode_is_found() -> None:
    env = Lottery(3)
    env.metadata = {}
    broken(r"metadata\['autoreset_mode'\] must be a gymnasium AutoresetMode, got None", env)


def test_schema_of_other_keys_is_found() -> None:
    env = Lottery(3)
    env.entity_schema = Countdown(3).entity_schema
    broken("observation_space must hold 'item' and 'item_mask'", env)


class Loop(gymnasium.Env):
    """A single environment with switchable faults."""

    def __init__(self, **faults: Any) -> None:
        self.faults = faults
        self.observation_space = spaces.Dict(
            {"item": spaces.Box(0, 99, (2, 1)), "item_mask": spaces.MultiBinary(2)}
        )
        self.action_space = spaces.Discrete(2)
        self.buffer = np.zeros((2, 1), np.float32)

    def _observation(self) -> Any:
        if self.faults.get("tuple"):
            return (self.buffer,)
        item = self.buffer if self.faults.get("reused") else self.buffer.copy()
        return {"item": item, "item_mask": np.ones(2, np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=None if self.faults.get("unseeded") else seed)
        if self.faults.get("restless") and seed is None:
            self.np_random = np.random.default_rng()
        self.buffer[:] = self.np_random.integers(50)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        self.buffer += 1
        return (
            self._observation(),
            self.faults.get("reward", 1.0),
            self.faults.get("terminated", self.buffer[0, 0] > 60),
            False,
            {},
        )


def test_foreign_environments_are_checked_by_their_space() -> None:
    assert check_entity_env(Loop(), steps=30).entities == 2.0


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"tuple": True}, "observation must be a dict, got tuple"),
        ({"reused": True}, r"never be overwritten, but 'item' of step 0 changed during step 1"),
        ({"unseeded": True}, "must be equal under the same seed, got another 'item' at step 0"),
        ({"restless": True}, r"reset\(\) must continue the stream|under the same seed"),
        ({"reward": float("nan")}, r"reward must be finite of shape \(1,\), got \[nan\] at step 1"),
        ({"terminated": 0.0}, r"terminated must be bool of shape \(1,\), got float64"),
    ],
)
def test_faults_of_single_environments_are_found(faults: dict[str, Any], message: str) -> None:
    broken(message, Loop(**faults))


def test_space_that_is_no_dict_is_found() -> None:
    env = Loop()
    env.observation_space = spaces.Box(0, 1, (2, 1))
    broken("observation_space must be a Dict, got Box", env)


def test_observations_that_share_memory_with_the_environment_are_found() -> None:
    class Shared(Lottery):
        def _observe(self, state: State) -> State:
            return {**super()._observe(state), "noise": state["noise"]}

    broken("must be equal under a caller who edits observations", Shared(3))


class Infos(Lottery):
    """A Lottery whose infos are replaced."""

    def __init__(self, infos: dict[str, Any], **options: Any) -> None:
        super().__init__(3, **options)
        self.replaced = infos

    def step(self, actions: Any) -> Any:
        return (*super().step(actions)[:4], dict(self.replaced))


def test_infos_without_mask_or_of_another_length_are_found() -> None:
    broken(r"infos\['a'\] must come with a bool mask '_a' of shape \(3,\)", Infos({"a": [1, 2, 3]}))
    broken(
        r"infos\['a'\] must have one entry for each of 3 envs, got 2",
        Infos({"a": [1, 2], "_a": np.ones(3, bool)}),
    )


def test_final_observations_are_looked_for() -> None:
    broken("must hold 'final_obs' and '_final_obs'", Infos({}, autoreset_mode="SAME_STEP"))

    class Late(Lottery):
        def step(self, actions: Any) -> Any:
            *result, infos = super().step(actions)
            if "final_obs" in infos:
                for env in infos["_final_obs"].nonzero()[0]:
                    infos["final_obs"][env] = {"noise": 3}
            return (*result, infos)

    broken(
        r"infos\['final_obs'\]\[\d\] must be an observation", Late(3, autoreset_mode="SAME_STEP")
    )


def test_autoreset_that_contradicts_the_declaration_is_found() -> None:
    env = Lottery(3, autoreset_mode="SAME_STEP")
    env.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP
    broken("in NEXT_STEP mode the step after an end must return reward 0", env)

    class All(Lottery):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return super().reset(seed=seed)

    broken("must leave the other environments alone", All(3, autoreset_mode="DISABLED"))


def test_driver_plays_a_batch_as_its_rows() -> None:
    env: EntityVectorEnv = Lottery(3)
    driver = Driver(env)
    observation = driver.reset(seed=0)
    rows = driver.rows(env.observation())
    assert len(rows) == 3
    assert np.array_equal(rows[2]["ball"], observation["ball"][2])
    single = Driver(EntityEnv(Lottery))
    single.reset(seed=0)
    assert single.mode is None
    assert len(single.rows({"a": np.zeros((1, 2))})) == 1
