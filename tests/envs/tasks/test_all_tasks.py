import inspect
import multiprocessing
import operator
import pickle
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from PIL import Image

from entity_encoder.envs import TASKS, EntityVectorEnv, check_entity_env, find_task

MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")
SECTIONS = (
    "Description",
    "Action Space",
    "Observation Space",
    "Rewards",
    "Starting State",
    "Episode End",
    "Arguments",
    "Version History",
)


def make(name: str, num_envs: int, **options: Any) -> EntityVectorEnv:
    return find_task(name)(num_envs, **options)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def lottery_action(env: EntityVectorEnv, lottery: np.ndarray) -> np.ndarray:
    """Take the legal action with the best ticket; lottery (E, 99)."""
    space: Any = env.single_action_space
    if isinstance(space, gymnasium.spaces.Box):
        share = lottery[:, : space.shape[0]]
        action: np.ndarray = (space.low + share * (space.high - space.low)).astype(np.float32)
        return action
    if env.legal is not None:
        legal = env.legal.numpy()
        tickets = lottery[:, : legal.shape[-1]].reshape(len(legal), *[1] * (legal.ndim - 2), -1)
        best: np.ndarray = np.where(legal, tickets, -1.0).argmax(-1)
        return best
    counts = np.asarray(space.nvec if hasattr(space, "nvec") else space.n)
    tickets = lottery[:, : counts.size].reshape(env.num_envs, *space.shape)
    return (tickets * counts).astype(np.int64)


def trajectory(name: str, num_envs: int, first: int, steps: int) -> list[Any]:
    """Play environments `first` and following of seed 100, with actions of their own."""
    tickets = np.random.default_rng(0).random((steps, 16, 99))[:, first : first + num_envs]
    env = make(name, num_envs)
    record: list[Any] = [env.reset(seed=100 + first)[0]]
    for lottery in tickets:
        record.append(env.step(lottery_action(env, lottery))[:4])
    return record


@pytest.mark.parametrize("name", TASKS)
def test_gymnasium_s_checker_finds_nothing(name: str) -> None:
    # The checker draws an action in one state and takes it in another: no slot may be absent.
    full: dict[str, Any] = {
        "LockChain": {"min_chain": 3, "min_branches": 3, "min_branch_length": 2},
        "Triage": {"min_jobs": 8},
    }
    env = gymnasium.make(f"Entity/{name}-v0", **full.get(name, {}))
    check_env(env.unwrapped, skip_render_check=True)  # it would open a window
    check_entity_env(env, steps=20)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TASKS)
def test_promises_hold_in_every_autoreset_mode(name: str, mode: str) -> None:
    report = check_entity_env(make(name, 3, autoreset_mode=mode), steps=40)
    assert report.steps == 120


@pytest.mark.parametrize("name", TASKS)
def test_trajectories_do_not_depend_on_the_number_of_environments(name: str) -> None:
    many, few, one = (trajectory(name, *rows, steps=25) for rows in ((11, 0), (3, 5), (1, 7)))
    for a, b, c in zip(many, few, one, strict=True):
        first, second, third = (x if isinstance(x, tuple) else (x,) for x in (a, b, c))
        for x, y, z in zip(first, second, third, strict=True):
            if isinstance(x, dict):
                assert equal({k: v[5:8] for k, v in x.items()}, y)
                assert equal({k: v[2:3] for k, v in y.items()}, z)
            else:
                assert equal(x[5:8], y)
                assert equal(y[2:3], z)


@pytest.mark.parametrize("name", TASKS)
def test_single_environment_repeats_a_row_of_the_batch(name: str) -> None:
    single = gymnasium.make(f"Entity/{name}-v0")
    batch = make(name, 2, autoreset_mode="DISABLED")
    observation, _ = single.reset(seed=8)
    expected, _ = batch.reset(seed=7)
    assert equal(observation, {key: value[1] for key, value in expected.items()})
    action = batch.reference_policy(batch.state)
    observation, reward, *flags, _ = single.step(action[1].numpy()[()])
    expected, rewards, *batch_flags, _ = batch.step(action)
    assert equal(observation, {key: value[1] for key, value in expected.items()})
    assert reward == rewards[1]
    assert flags == [bool(flag[1]) for flag in batch_flags]


@pytest.mark.parametrize("name", TASKS)
def test_state_resumes_bit_exactly(name: str) -> None:
    env = make(name, 5)
    env.reset(seed=1)
    for _ in range(7):
        env.step(env.reference_policy(env.state))
    saved = pickle.loads(pickle.dumps(env.get_state()))
    later, copy = make(name, 5), pickle.loads(pickle.dumps(env))
    later.set_state(saved)
    assert equal(later.observation(), env.observation())
    for _ in range(9):
        action = env.reference_policy(env.state)
        expected = env.step(action)
        assert equal(later.step(action), expected)
        assert equal(copy.step(action), expected)


def test_environments_reach_spawned_processes_whole() -> None:
    envs = [make(name, 2) for name in TASKS]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        apart = pool.map(operator.methodcaller("reset", seed=3), envs)
    for env, (observation, _) in zip(envs, apart, strict=True):
        assert equal(observation, env.reset(seed=3)[0])


@pytest.mark.parametrize("name", TASKS)
def test_rules_are_functions_that_change_nothing_in_place(name: str) -> None:
    env = make(name, 4, output="torch")
    env.reset(seed=2)
    before = {key: value.clone() for key, value in env.state.items()}
    action = env.reference_policy(env.state)
    env.observe(env.state)
    optimum = getattr(env, "optimum", None)
    if optimum is not None:
        assert optimum(env.state).shape == (4,)
    env.transition(env.state, action, env._streams.rng(1))
    assert equal(env.state, before)


@pytest.mark.parametrize("name", TASKS)
def test_nothing_waits_for_another_device(name: str) -> None:
    # Tensors on "meta" have no values: whatever asks for one raises an error.
    env = make(name, 3, device="meta", output="torch", autoreset_mode="SAME_STEP")
    env.reset(seed=0)
    for _ in range(2):
        observation, reward, *_ = env.step(env.reference_policy(env.state))
    assert {value.device.type for value in observation.values()} == {"meta"}
    assert reward.shape == (3,)
    assert reward.dtype == torch.float32


@pytest.mark.parametrize("name", TASKS)
def test_frames_have_one_size_and_show_something(name: str) -> None:
    env = make(name, 2, render_mode="rgb_array", autoreset_mode="DISABLED")
    env.reset(seed=4)
    frames: list[np.ndarray] = []
    for _ in range(3):
        drawn = env.render()
        assert drawn is not None
        frames += drawn
        *_, terminated, truncated, _ = env.step(env.reference_policy(env.state))
        ended = terminated | truncated
        if ended.any():
            frames += env.render() or ()
            env.reset(options={"reset_mask": ended})
    assert {(frame.shape, frame.dtype.name) for frame in frames} == {((520, 480, 3), "uint8")}
    colours = [Image.fromarray(frame).getcolors(2**18) or () for frame in frames]
    assert min(map(len, colours)) > 20
    assert len({frame.tobytes() for frame in frames}) > 2


@pytest.mark.parametrize("name", TASKS)
def test_time_limit_truncates_what_has_not_terminated(name: str) -> None:
    env = make(name, 5, max_episode_steps=1)
    env.reset(seed=0)
    _, _, terminated, truncated, infos = env.step(env.reference_policy(env.state))
    assert truncated.tolist() == (~terminated).tolist()
    assert infos["_score"].all()


@pytest.mark.parametrize("name", TASKS)
def test_class_docstring_is_the_page(name: str) -> None:
    page = inspect.getdoc(find_task(name)) or ""
    assert tuple(re.findall(r"^## (.+)$", page, re.MULTILINE)) == SECTIONS
    end = page.split("## Episode End")[1].split("##")[0]
    assert "Termination:" in end
    assert re.search("[Tt]runcation", end) or "one" not in end
    signature = inspect.signature(find_task(name).__init__)
    for option, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert f"- `{option}` (" in page
    env = make(name, 1)
    assert isinstance(env.single_observation_space, gymnasium.spaces.Dict)
    for key in env.single_observation_space:
        assert f"| `{key}` |" in page or (key.endswith("_mask") and "| `<group>_mask` |" in page)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("CherryPick", {"max_cherries": 1}, "max_cherries must be a whole number from 2 to 1024"),
        ("Count", {"max_beans": 0}, "max_beans must be a whole number from 1 to 1024, got 0"),
        ("Count", {"choices": 11}, "choices must be a whole number from 2 to 10, got 11"),
        ("Coverage", {"max_agents": 0}, "max_agents must be a whole number from 1 to 128, got 0"),
        ("Coverage", {"min_agents": 5}, "min_agents must be a whole number from 1 to 4, got 5"),
        ("FloorIsLava", {"max_tiles": 9}, "max_tiles must be a whole number from 1 to 8, got 9"),
        ("LockChain", {"max_chain": 65}, "max_chain must be a whole number from 1 to 64, got 65"),
        ("LockChain", {"min_branches": 4}, "min_branches must be a whole number from 0 to 3"),
        (
            "LockChain",
            {"max_branches": 64, "max_branch_length": 4},
            r"max_chain \+ max_branches \* max_branch_length must be at most 256.*, got 259",
        ),
        ("Minefield", {"max_mines": 513}, "max_mines must be a whole number from 1 to 512"),
        ("MultiSnake", {"num_snakes": 9}, "num_snakes must be a whole number from 1 to 8, got 9"),
        ("MultiSnake", {"size": 4}, "size must be a whole number from 5 to 32, got 4"),
        ("PickMatchingBalls", {"max_balls": 2}, "max_balls must be a whole number from 3 to 1024"),
        ("PickMatchingBalls", {"min_balls": 33}, "min_balls must be a whole number from 3 to 32"),
        ("Sorter", {"max_tiles": 21}, "max_tiles must be a whole number from 2 to 20, got 21"),
        ("Sorter", {"min_tiles": 1}, "min_tiles must be a whole number from 2 to 5, got 1"),
        ("Skirmish", {"max_units": 129}, "max_units must be a whole number from 1 to 128, got 129"),
        ("Skirmish", {"min_units": 6}, "min_units must be a whole number from 1 to 5, got 6"),
        ("Triage", {"max_jobs": 2.5}, "max_jobs must be a whole number from 2 to 1024, got 2.5"),
        ("Triage", {"min_jobs": 9}, "min_jobs must be a whole number from 2 to 8, got 9"),
        ("Xor", {"max_inputs": 65}, "max_inputs must be a whole number from 2 to 64, got 65"),
    ],
)
def test_options_outside_their_range_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, 1, **options)
