import os
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.agents.workers import FactoryVectorEnv, WorkerError
from tests.cases.toys import Counter, Toy


class Fragile(Counter):
    """Raises, or dies, in its second step when it is told to."""

    def __init__(self, fault: str = "") -> None:
        super().__init__(5)
        self.fault = fault

    def step(self, action: Any) -> Any:
        if self.count == 1 and self.fault == "raise":
            raise KeyError("a fault of the environment")
        if self.count == 1 and self.fault == "die":
            os._exit(7)
        if self.count == 1 and self.fault == "kill":
            os.kill(os.getpid(), 9)
        return super().step(action)


@pytest.fixture
def opened() -> Iterator[list[FactoryVectorEnv]]:
    envs: list[FactoryVectorEnv] = []
    yield envs
    for env in envs:
        env.close()


def trace(env: FactoryVectorEnv, steps: int) -> list[Any]:
    observation, _ = env.reset(seed=11)
    found: list[Any] = [observation]
    actions = np.random.default_rng(0).integers(3, size=(steps, env.num_envs))
    for t in range(steps):
        found.append(env.step(actions[t]))
    return found


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f"))


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing_but_the_speed(opened: list[Any], workers: int) -> None:
    made = [Toy] * 5
    opened += [FactoryVectorEnv(made), FactoryVectorEnv(made, workers=workers)]
    here, there = opened
    assert equal(trace(here, 9), trace(there, 9))
    state = here.get_state()
    assert equal(state, there.get_state())
    there.set_state(state)
    assert equal(here.step(np.zeros(5, int)), there.step(np.zeros(5, int)))


def test_an_episode_that_ends_hands_over_its_last_observation() -> None:
    env = FactoryVectorEnv([lambda: Counter(2), lambda: Counter(3)])
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    observation, reward, terminated, _, infos = env.step(np.zeros(2, int))
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert terminated.tolist() == [True, False]
    assert reward.tolist() == [2.0, 2.0]
    assert observation["entities"][:, 0, 0].tolist() == [0, 2]
    assert infos["final_obs"]["entities"][0, 0, 0] == 2
    assert infos["_final_obs"].tolist() == [True, False]
    assert infos["score"][0] == 0.2
    assert infos["_score"].tolist() == [True, False]


def test_returned_arrays_are_not_written_over() -> None:
    env = FactoryVectorEnv([lambda: Counter(4)])
    first, _ = env.reset(seed=0)
    env.step(np.zeros(1, int))
    assert first["entities"][0, 0, 0] == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", r"(?s)in worker 1: KeyError: 'a fault of .*in environment 2.*Traceback.*in step"),
        ("die", "worker 1, with environments 2 to 3, died with exit code 7"),
        ("kill", r"worker 1, .* died with exit code -9 \(signal SIGKILL\)"),
    ],
)
def test_a_fault_in_a_worker_is_reported_at_once(
    opened: list[Any], fault: str, message: str
) -> None:
    made = [Fragile, Fragile, lambda: Fragile(fault), Fragile]
    env = FactoryVectorEnv(made, workers=2)
    opened.append(env)
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    start = time.monotonic()
    with pytest.raises(WorkerError, match=message):
        env.step(np.zeros(4, int))
    assert time.monotonic() - start < 30  # no timeout was waited for
    assert not any(worker.process.is_alive() for worker in env._workers)


def test_a_fault_in_this_process_keeps_its_type_and_names_the_environment() -> None:
    env = FactoryVectorEnv([Fragile, lambda: Fragile("raise")])
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    with pytest.raises(KeyError) as error:
        env.step(np.zeros(2, int))
    assert error.value.__notes__ == ["in environment 1"]


def test_a_factory_that_fails_in_a_worker_leaves_no_process(opened: list[Any]) -> None:
    def broken() -> gymnasium.Env[Any, Any]:
        raise FileNotFoundError("no map")

    with pytest.raises(WorkerError, match="in worker 1: FileNotFoundError: no map"):
        FactoryVectorEnv([Toy, broken], workers=2)


def test_one_object_for_all_is_refused() -> None:
    one = Toy()
    with pytest.raises(ValueError, match="the same object from number 0 and 1"):
        FactoryVectorEnv([lambda: one] * 3)


class Other(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(9)


class Flat(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 1, (3,))  # type: ignore[assignment]


class Ragged(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(a=spaces.Sequence(spaces.Discrete(3)))


class Wide(Counter):
    """Returns another shape than it declared."""

    def __init__(self, dtype: Any = np.float32, slots: int = 3) -> None:
        super().__init__(2)
        self.table = np.zeros((slots, 1), dtype)

    def _observe(self) -> dict[str, Any]:
        return {**super()._observe(), "entities": self.table}


@pytest.mark.parametrize(
    ("factories", "message"),
    [
        ([Toy, Other], "action_space must be the same in every environment, got Discrete"),
        ([Toy, lambda: 3], "factory 1 must return a gymnasium.Env, got int"),
        ([Flat], "observation_space must be a Dict of entity tables and masks, got Box"),
        ([Ragged], "observation 'a' must be a space of fixed shape.*SequenceToEntities"),
    ],
)
def test_environments_that_cannot_stand_together_are_refused(
    factories: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FactoryVectorEnv(factories)


def test_the_number_of_workers_must_fit() -> None:
    with pytest.raises(
        ValueError, match=r"workers must be between 0 .* got 3 workers and 2 factor"
    ):
        FactoryVectorEnv([Toy, Toy], workers=3)


def test_observations_outside_their_space_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'entities' must have the shape of .*\(2, 1\), got \(3"):
        FactoryVectorEnv([Wide]).reset(seed=0)
    with pytest.raises(ValueError, match=r"'entities' must have the dtype of .* got complex128"):
        FactoryVectorEnv([lambda: Wide(np.complex128, 2)]).reset(seed=0)


def test_options_are_refused() -> None:
    with pytest.raises(ValueError, match="options must be empty, got"):
        FactoryVectorEnv([Toy]).reset(options={"reset_mask": np.ones(1, bool)})


def test_time_limits_are_part_of_the_state() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(Counter(9), 3)

    first, second = FactoryVectorEnv([make]), FactoryVectorEnv([make])
    first.reset(seed=0)
    second.reset(seed=0)
    first.step(np.zeros(1, int))
    second.set_state(first.get_state() or [])
    for _ in range(2):
        a, b = first.step(np.zeros(1, int)), second.step(np.zeros(1, int))
        assert equal(a, b)
    assert a[3].tolist() == [True]


def test_a_wrapper_that_may_remember_makes_the_state_unknown() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.NormalizeReward(Toy())

    env = FactoryVectorEnv([make])
    env.reset(seed=0)
    assert env.get_state() is None


def test_answers_that_nobody_waited_for_are_forgotten(opened: list[Any]) -> None:
    env = FactoryVectorEnv([lambda: Counter(9)] * 2, workers=2)
    opened.append(env)
    env.reset(seed=0)
    state = env.get_state()
    env.step_async(np.zeros(2, int))  # training is interrupted here
    env.set_state(state or [])
    _, reward, *_ = env.step(np.zeros(2, int))
    assert reward.tolist() == [1.0, 1.0]
