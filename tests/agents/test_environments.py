from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import entity_encoder.envs  # noqa: F401  (registers the tasks)
from entity_encoder.agents.environments import Environments, find_schema
from entity_encoder.schema import EntitySchema
from tests.cases.toys import Counter, counters

MODES = ["NEXT_STEP", "SAME_STEP", "DISABLED"]


def play(envs: Environments, steps: int) -> dict[str, list[Any]]:
    """Step and note what each row was, environment 0 only."""
    found: dict[str, list[Any]] = {k: [] for k in ("seen", "valid", "begins", "reward", "final")}
    envs.reset(seed=1)
    for _ in range(steps):
        found["seen"].append(int(envs.observation["entities"][0, 0, 0]))
        found["begins"].append(bool(envs.begins[0]))
        step = envs.step(torch.zeros(envs.num_envs, dtype=torch.int64))
        found["valid"].append(bool(step.valid[0]))
        found["reward"].append(float(step.reward[0]))
        final = step.final
        rows = [] if final is None or final.rows is None else final.rows.tolist()
        kept = final is not None and 0 in rows
        found["final"].append(
            int(final.observation["entities"][rows.index(0), 0, 0]) if kept and final else None
        )
    return found


def test_next_step_marks_the_row_that_only_resets() -> None:
    got = play(Environments(counters([2, 3], "NEXT_STEP", truncates=True)), 6)
    assert got["seen"] == [0, 1, 2, 0, 1, 2]  # 2 is the final observation
    assert got["valid"] == [True, True, False, True, True, False]
    assert got["begins"] == [True, False, False, True, False, False]
    assert got["reward"] == [1, 2, 0, 1, 2, 0]
    assert got["final"] == [None] * 6


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_other_modes_hand_the_final_observation_over(mode: str) -> None:
    got = play(Environments(counters([2, 3], mode, truncates=True)), 6)
    assert got["seen"] == [0, 1, 0, 1, 0, 1]
    assert got["valid"] == [True] * 6
    assert got["begins"] == [True, False] * 3
    assert got["final"] == [None, 2] * 3


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_read_where_an_episode_ended(mode: str) -> None:
    envs = Environments(counters([2, 3], mode))
    envs.reset(seed=1)
    action = torch.zeros(2, dtype=torch.int64)
    assert "score" not in envs.step(action).outcomes
    score = envs.step(action).outcomes["score"]
    assert float(score[0]) == pytest.approx(0.2)
    assert torch.isnan(score[1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_our_tasks_give_the_same_transitions_in_either_form(mode: str, output: str) -> None:
    make = gymnasium.make_vec(
        "Entity/Minefield-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        output=output,
        autoreset_mode=mode,
        max_episode_steps=4,
    )
    envs = Environments(make)
    envs.reset(seed=5)
    seen, valid = [], []
    for _ in range(9):
        seen.append(envs.observation["vehicle"].clone())
        step = envs.step(torch.ones(3, dtype=torch.int64))
        valid.append(step.valid)
        ends = step.truncated if step.final is not None else torch.zeros(3, dtype=torch.bool)
        if step.final is not None:
            assert step.final.rows is not None
            assert step.final.rows.tolist() == ends.nonzero().flatten().tolist()
            assert (step.final.observation["step"] == 1).all()
    rows = torch.stack(seen)[torch.stack(valid)[:, 0], 0][:8]
    reference = Environments(
        gymnasium.make_vec(
            "Entity/Minefield-v0",
            num_envs=1,
            vectorization_mode="vector_entry_point",
            max_episode_steps=4,
            autoreset_mode="SAME_STEP",
        )
    )
    reference.reset(seed=5)
    for row in rows[:7]:
        assert torch.equal(row, reference.observation["vehicle"][0])
        reference.step(torch.ones(1, dtype=torch.int64))


@pytest.mark.parametrize("mode", MODES)
def test_state_of_our_tasks_can_be_taken_and_put_back(mode: str) -> None:
    def make() -> Environments:
        return Environments(
            gymnasium.make_vec(
                "Entity/FloorIsLava-v0",
                num_envs=3,
                vectorization_mode="vector_entry_point",
                output="torch",
                autoreset_mode=mode,
            )
        )

    first, second = make(), make()
    first.reset(seed=2)
    action = torch.tensor([0, 1, 2])
    first.step(action)
    assert second.set_state(first.get_state())
    for _ in range(3):
        a, b = first.step(action), second.step(action)
        assert torch.equal(a.reward, b.reward)
        assert torch.equal(a.valid, b.valid)
        for key in first.observation:
            assert torch.equal(first.observation[key], second.observation[key])


def test_environments_without_a_state_say_so() -> None:
    envs = Environments(counters([2]))
    envs.reset(seed=0)
    assert envs.get_state()["env"] is None
    assert not envs.set_state(envs.get_state())


def test_stored_observations_survive_an_environment_that_reuses_its_arrays() -> None:
    from entity_encoder.agents.collect import Collector
    from entity_encoder.agents.policy import EntityPolicy

    make = [lambda: Counter(3), lambda: Counter(2)]
    seen = {}
    for copy in (True, False):
        env = SyncVectorEnv(make, copy=copy, autoreset_mode=AutoresetMode.SAME_STEP)
        envs = Environments(env)
        envs.reset(seed=0)
        policy = EntityPolicy(envs.schema, envs.action_space, d_model=8, n_heads=2, n_layers=1)
        done = Collector(policy, envs, 7, torch.Generator().manual_seed(0)).collect()
        seen[copy] = done.observation["entities"][..., 0, 0]
    assert torch.equal(seen[True], seen[False])
    assert seen[True][:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_the_same_environment_twice_is_refused() -> None:
    one = Counter(2)
    env = SyncVectorEnv([lambda: one, lambda: Counter(2), lambda: one])
    with pytest.raises(ValueError, match="different objects, got the same one as number 0 and 2"):
        Environments(env)


class Careless(VectorEnv[Any, Any, Any]):
    """Returns what it is told to."""

    def __init__(self, **metadata: Any) -> None:
        self.metadata = metadata
        self.num_envs = 2
        self.single_observation_space = spaces.Dict(
            x=spaces.Box(-1, 1, (1, 1), np.float32), x_mask=spaces.MultiBinary(1)
        )
        self.single_action_space = spaces.Discrete(2)
        self.rewards: Any = np.zeros(2)

    def _observe(self) -> dict[str, Any]:
        return {"x": np.zeros((2, 1, 1), np.float32), "x_mask": np.ones((2, 1), np.int8)}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        return self._observe(), self.rewards, np.zeros(2, bool), np.zeros(2, bool), {}


def test_an_autoreset_mode_is_never_guessed() -> None:
    with pytest.raises(ValueError, match=r"autoreset_mode of Careless must be one of .* got None"):
        Environments(Careless())
    assert Environments(Careless(), autoreset_mode="SAME_STEP").mode is AutoresetMode.SAME_STEP
    assert Environments(Careless(autoreset_mode="NextStep")).mode is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (np.array([0.0, np.inf]), "reward must be finite, got inf in environment 1"),
        (np.zeros((2, 1)), r"reward must have shape \(2,\), got \(2, 1\)"),
    ],
)
def test_rewards_that_cannot_be_learned_from_are_refused(rewards: Any, message: str) -> None:
    env = Careless(autoreset_mode=AutoresetMode.SAME_STEP)
    envs = Environments(env)
    envs.reset()
    env.rewards = rewards
    with pytest.raises(ValueError, match=message):
        envs.step(torch.zeros(2, dtype=torch.int64))


def test_a_declared_schema_is_found_and_otherwise_the_space_is_read() -> None:
    ours = gymnasium.make_vec("Entity/Minefield-v0", 2, vectorization_mode="vector_entry_point")
    assert find_schema(ours).frame is not None
    single = SyncVectorEnv([lambda: gymnasium.make("Entity/Minefield-v0")])
    assert find_schema(single) == find_schema(ours)
    assert find_schema(counters([2])) == EntitySchema.from_space(Counter(2).observation_space)


def test_a_wrapper_may_declare_something_else_than_what_it_wraps() -> None:
    ours = gymnasium.make_vec("Entity/Minefield-v0", 2, vectorization_mode="vector_entry_point")
    wrapped: Any = gymnasium.vector.VectorWrapper(ours)
    assert find_schema(wrapped) == find_schema(ours)
    wrapped.entity_schema = find_schema(ours).with_slots({"mine": 3})
    assert find_schema(wrapped).group("mine").slots == 3


class Echo(Careless):
    """Keeps the actions it was sent."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(autoreset_mode=AutoresetMode.SAME_STEP)
        self.single_action_space = space
        self.sent: Any = None

    def step(self, actions: Any) -> Any:
        self.sent = actions
        return super().step(actions)


def test_actions_take_the_types_of_their_space() -> None:
    space = spaces.Dict(
        move=spaces.Box(-1, 1, (2,), np.float32),
        more=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
    )
    env = Echo(space)
    envs = Environments(env)
    envs.reset()
    action = {
        "move": torch.zeros(2, 2, dtype=torch.float64),
        "more": (torch.ones(2, dtype=torch.int64), torch.ones(2, 2, dtype=torch.int64)),
    }
    envs.step(action)
    assert env.sent["move"].dtype == np.float32
    assert env.sent["more"][0].dtype == np.int64
    assert env.sent["more"][1].dtype == np.int8
