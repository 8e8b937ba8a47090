from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from entity_encoder.envs.tasks.coverage import Coverage
from tests.envs.tasks.play import Policy, agrees, first_returns, place, random, reference

STAY, UP, RIGHT, DOWN, LEFT = range(5)


def lay_out(agents: list[list[float]], landmarks: list[list[float]], **options: Any) -> Coverage:
    """Place agents and landmarks in the first slots; the last slot is absent."""
    n = len(agents)
    env = Coverage(1, max_agents=n + 1, **options)
    there = [[True] * n + [False]]
    place(
        env,
        agent=[[*agents, [0.0, 0.0]]],
        landmark=[[*landmarks, [0.0, 0.0]]],
        agent_present=there,
        landmark_present=there,
    )
    return env


def test_agents_move_a_tenth_and_stop_at_the_border() -> None:
    env = lay_out([[0.0, 0.0], [0.5, 0.98], [-0.95, 0.2]], [[0.0, 0.0]] * 3)
    for actions, places in (
        ([STAY, UP, LEFT, STAY], [[0.0, 0.0], [0.5, 1.0], [-1.0, 0.2], [0.0, 0.0]]),
        ([UP, RIGHT, DOWN, UP], [[0.0, 0.1], [0.6, 1.0], [-1.0, 0.1], [0.0, 0.0]]),
    ):
        observation = env.step([actions])[0]
        torch.testing.assert_close(torch.tensor(observation["agent"][0]), torch.tensor(places))
    assert observation["agent_mask"].tolist() == [[1, 1, 1, 0]]
    assert observation["step"].tolist() == [[pytest.approx(2 / 25)]]


def test_each_landmark_counts_its_nearest_agent_after_the_move() -> None:
    env = lay_out([[0.0, 0.0], [0.9, 0.9]], [[0.3, 0.5], [0.0, -0.2]])
    _, reward, terminated, _, _ = env.step([[UP, STAY, STAY]])
    # The agent at (0, .1) is nearest to both: .5 and .3. The absent one at (0, 0) counts nothing.
    assert reward[0] == pytest.approx(-(0.5 + 0.3) / 2)
    assert not terminated.any()


def test_time_runs_out_after_25_steps() -> None:
    env = lay_out([[0.0, 0.0]], [[0.0, 0.0]])
    ends = [env.step([[STAY, STAY]])[2:4] for _ in range(25)]
    assert not any(terminated for terminated, _ in ends)
    assert [bool(truncated) for _, truncated in ends] == [False] * 24 + [True]


def goals(env: Coverage, rule: str) -> list[int]:
    action: list[int] = env.reference_policy(env.state, rule)[0].tolist()  # type: ignore[arg-type]
    return action


def test_rules_send_agents_where_they_say() -> None:
    # Agents at 0 and .3 on a line, landmarks at .4 and -.8 and, for the second case, .9.
    env = lay_out([[0.0, 0.0], [0.3, 0.0]], [[0.4, 0.0], [-0.8, 0.0]])
    assert goals(env, "nearest") == [RIGHT, RIGHT, STAY]
    assert goals(env, "greedy") == [LEFT, RIGHT, STAY]
    env = lay_out([[0.0, 0.0], [0.3, 0.0]], [[0.1, 0.0], [0.16, 0.9]])
    assert goals(env, "nearest") == [RIGHT, LEFT, STAY]
    assert goals(env, "greedy") == [RIGHT, UP, STAY]
    # Greedy gives .4 to the agent at .5 and leaves 1 to the other: 1.1 in all instead of .9.
    env = lay_out([[0.0, 0.0], [0.5, 0.0]], [[0.4, 0.0], [1.0, 0.0]])
    assert goals(env, "greedy") == [RIGHT, LEFT, STAY]
    assert goals(env, "best") == [RIGHT, RIGHT, STAY]


def test_agents_stay_where_no_step_brings_them_nearer() -> None:
    env = lay_out([[0.0, 0.0]], [[0.04, -0.05]])
    assert goals(env, "best") == [STAY, STAY]


def rule(name: Any, env: Any) -> Tensor:
    action: Tensor = env.reference_policy(env.state, name)
    return action


@pytest.mark.parametrize(
    ("agents", "episodes", "marks"),
    [
        (3, 500, (-16.4, -9.1, -5.1, -4.6)),
        (8, 300, (-9.9, -5.6, -2.9, -2.5)),
        (32, 40, (-4.8, -3.0, -1.5, -1.3)),
    ],
)
def test_policies_return_what_is_known_of_them(
    agents: int, episodes: int, marks: tuple[float, ...]
) -> None:
    env = Coverage(episodes, max_agents=agents, min_agents=agents)
    policies: tuple[Policy, ...] = (
        random,
        *(partial(rule, name) for name in ("nearest", "greedy", "best")),
    )
    for policy, mark in zip(policies, marks, strict=True):
        assert agrees(first_returns(env, policy), mark, slack=0.04 * abs(mark))
    assert env.random_return == pytest.approx(marks[0], rel=0.03)
    assert env.reference_return == pytest.approx(marks[3], rel=0.05)


def test_the_score_is_0_for_random_and_1_for_the_reference() -> None:
    env = Coverage(1000)
    assert agrees(first_returns(env, random), env.random_return)
    assert agrees(first_returns(env, reference), env.reference_return)


def test_counts_are_drawn_evenly_and_both_groups_agree() -> None:
    env = Coverage(2000, max_agents=5, min_agents=2)
    observation, _ = env.reset(seed=0)
    count = torch.tensor(observation["agent_mask"]).sum(1)
    assert torch.equal(count, torch.tensor(observation["landmark_mask"]).sum(1))
    counts = torch.bincount(count, minlength=6)
    assert counts[:2].sum() == 0
    assert ((counts[2:] - 500).abs() <= 4 * (2000 * 0.25 * 0.75) ** 0.5).all()
    for group in ("agent", "landmark"):
        points = torch.tensor(observation[group])[torch.tensor(observation[f"{group}_mask"]).bool()]
        assert points.min() < -0.98
        assert points.max() > 0.98
        assert points.abs().max() <= 1.0
