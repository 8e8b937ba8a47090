from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.agents.environments import Environments
from entity_encoder.envs.bridges.parallel import ParallelVectorEnv
from tests.envs.bridges.teams import SPACE, Timetable

# a: steps 1-3; b dies in step 1; c comes before step 2 and leaves in step 2.
TIMES = {"a": (1, 3), "b": (1, 1), "c": (2, 2)}
IDLE = np.zeros(3, np.int64)


def make(times: dict[str, tuple[int, int]] = TIMES, copies: int = 1, **options: Any) -> Any:
    view = options.pop("view", None)
    mask = options.pop("action_mask", False)
    factories = [partial(Timetable, times, **options)] * copies
    return ParallelVectorEnv(factories, view, action_mask=mask)


def test_agents_come_and_go_and_every_row_says_so() -> None:
    env = make()
    observation, infos = env.reset(seed=5)
    assert infos["absent"].tolist() == [False, False, True]
    assert observation["clock"].tolist() == [[1], [1], [1]]  # absent: as near to 0 as it may be
    assert observation["unit_mask"].tolist() == [[1, 1], [1, 1], [0, 0]]
    expected = [
        # reward, terminated, absent afterwards, clock of each row
        ([1, 101, 0], [False, True, False], [False, True, False], [2, 2, 2]),
        ([2, 0, 202], [False, True, True], [False, True, True], [3, 1, 3]),
        ([3, 0, 0], [True, True, True], [True, True, True], [4, 1, 1]),
        ([0, 0, 0], [False, False, True], [False, False, True], [1, 1, 1]),  # begins again
        ([1, 101, 0], [False, True, False], [False, True, False], [2, 2, 2]),
    ]
    for reward, terminated, absent, clock in expected:
        observation, rewards, ends, cuts, infos = env.step(IDLE)
        assert rewards.tolist() == reward
        assert ends.tolist() == terminated
        assert not cuts.any()
        assert infos["absent"].tolist() == absent
        assert observation["clock"][:, 0].tolist() == clock
        assert observation in env.observation_space


def test_only_those_who_are_there_act() -> None:
    env = make(copies=2)
    env.reset()
    for _ in range(3):
        env.step(np.array([0, 1, 2, 2, 1, 0]))
    first, second = env.copies
    assert first.actions == [{"a": 0, "b": 1}, {"a": 0, "c": 2}, {"a": 0}]
    assert second.actions == [{"a": 2, "b": 1}, {"a": 2, "c": 0}, {"a": 2}]
    assert type(first.actions[0]["a"]) is int


def test_copies_end_apart_and_observations_are_not_shared() -> None:
    env = ParallelVectorEnv(
        [partial(Timetable, {"a": (1, 1)}), partial(Timetable, {"a": (1, 2)}, truncates=True)]
    )
    stored = [env.reset()[0]]
    ends, cuts = [], []
    for _ in range(4):
        observation, _, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
        stored.append(observation)
        ends.append(terminated.tolist())
        cuts.append(truncated.tolist())
    assert ends == [[True, False], [False, False], [True, False], [False, False]]
    assert cuts == [[False, False], [False, True], [False, False], [False, False]]
    assert [o["clock"][:, 0].tolist() for o in stored] == [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2]]


def test_the_trainer_learns_from_rows_of_agents_that_are_there() -> None:
    envs = Environments(make())
    envs.reset(seed=0)
    valid, begins = [], []
    for _ in range(6):
        begins.append(envs.begins.tolist())
        valid.append(envs.step(torch.zeros(3, dtype=torch.int64)).valid.tolist())
    yes, no = True, False
    episode = [[yes, yes, no], [yes, no, yes], [yes, no, no], [no, no, no]]
    assert valid == [*episode, *episode[:2]]
    # c begins when it comes, and not before; a goes on.
    assert [row[2] for row in begins] == [True, True, False, True, True, True]
    assert [row[0] for row in begins] == [True, False, False, False, True, False]


def test_seeds_reach_the_copies_and_only_the_first_reset() -> None:
    env = make({"a": (1, 1)}, copies=3)
    env.reset(seed=7)
    env.step(IDLE)
    env.step(IDLE)
    env.reset(seed=[4, None, 6])
    assert [copy.seeds for copy in env.copies] == [[7, None, 4], [8, None, None], [9, None, 6]]


def test_action_masks_come_from_the_infos() -> None:
    env = make(action_mask=True)
    observation, _ = env.reset()
    assert observation["action_mask"].tolist() == [[1, 0, 1], [1, 0, 1], [1, 1, 1]]
    assert env.entity_schema.action_masks == ("action_mask",)
    observation = env.step(IDLE)[0]
    assert observation["action_mask"].tolist() == [[1, 0, 0]] * 3
    assert observation in env.observation_space


class Uneven(Timetable):
    """a has two choices, the others three."""

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2 if agent == "a" else 3)


def test_agents_with_fewer_actions_have_the_rest_closed() -> None:
    env = ParallelVectorEnv([partial(Uneven, {"a": (1, 2), "b": (1, 1)})])
    assert env.single_action_space == spaces.Discrete(3)
    assert env.reset()[0]["action_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


class Steering(Timetable):
    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1, 1, (2,), np.float32)


def test_continuous_actions_arrive_in_the_type_of_their_space() -> None:
    env = ParallelVectorEnv([partial(Steering, {"a": (1, 2)})])
    env.reset()
    env.step(np.full((1, 2), 0.25, np.float64))
    (action,) = env.copies[0].actions[0].values()
    assert action.dtype == np.float32
    assert action.tolist() == [0.25, 0.25]


class Doubling:
    """A view that renames and doubles."""

    observation_space = SPACE
    entity_schema = Timetable.entity_schema

    def observe(self, agent: str, observation: Any) -> dict[str, np.ndarray]:
        number = float(ord(agent) - ord("a"))
        return {**observation, "clock": np.array([50 + number], np.float32)}


def test_a_view_sees_who_observes() -> None:
    observation, _ = make({"a": (1, 1), "b": (1, 1)}, view=Doubling()).reset()
    assert observation["clock"].tolist() == [[50], [51]]


def test_what_surrounds_it() -> None:
    env = make(copies=2)
    assert env.num_envs == 6
    assert env.agents == ("a", "b", "c")
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert env.entity_schema.group("unit").positions == ("f0",)
    env.reset()
    assert [frame.shape for frame in env.render()] == [(2, 3, 3)] * 2
    env.copies[0].render_mode = None
    env.render_mode = None
    assert env.render() is None
    env.close()
    assert all(copy.closed for copy in env.copies)


class Seeing(Timetable):
    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return SPACE if agent == "a" else spaces.Discrete(2)


class Acting(Timetable):
    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2) if agent == "a" else spaces.Box(0, 1)


class TestErrors:
    def test_no_copies(self) -> None:
        with pytest.raises(ValueError, match="at least one function, got none"):
            ParallelVectorEnv([])

    def test_one_object_for_all(self) -> None:
        one = Timetable(TIMES)
        with pytest.raises(ValueError, match="a new environment each, got the same one twice"):
            ParallelVectorEnv([lambda: one, lambda: one])

    def test_other_agents(self) -> None:
        factories = [partial(Timetable, {"a": (1, 1)}), partial(Timetable, {"b": (1, 1)})]
        with pytest.raises(ValueError, match=r"same agents \('a',\), got \('b',\) in copy 1"):
            ParallelVectorEnv(factories)

    def test_observations_of_two_kinds(self) -> None:
        with pytest.raises(ValueError, match=r"one space, got Dict.* for 'b', Discrete.* a view"):
            ParallelVectorEnv([partial(Seeing, TIMES)])

    def test_actions_of_two_kinds(self) -> None:
        with pytest.raises(ValueError, match=r"one action space, or Discrete .* got .*Box"):
            ParallelVectorEnv([partial(Acting, TIMES)])

    def test_another_autoreset_mode(self) -> None:
        with pytest.raises(ValueError, match="must be NEXT_STEP, in which agents may be absent"):
            ParallelVectorEnv([partial(Timetable, TIMES)], autoreset_mode=AutoresetMode.SAME_STEP)

    def test_a_step_before_the_first_reset(self) -> None:
        with pytest.raises(error.ResetNeeded, match="must be reset before it is stepped"):
            make().step(IDLE)

    def test_seeds_for_another_number_of_copies(self) -> None:
        with pytest.raises(ValueError, match="one entry for each of 1 copies, got 2"):
            make().reset(seed=[1, 2])
