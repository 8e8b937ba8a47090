import math

import numpy as np
import pytest
import torch

from entity_encoder.envs.tasks.minefield import Minefield
from tests.envs.tasks.play import agrees, first_returns, place, random, reference

LEFT, FORWARD, RIGHT = range(3)


def lay_out(
    env: Minefield,
    vehicle: list[tuple[float, float, float]],
    target: list[tuple[float, float]],
    mines: list[list[tuple[float, float]]],
) -> None:
    """Place vehicles (x, y, heading), targets and the present mines of each environment."""
    mine = torch.zeros(env.num_envs, env.max_mines, 2)
    present = torch.zeros(env.num_envs, env.max_mines, dtype=torch.bool)
    for row, points in enumerate(mines):
        for slot, point in enumerate(points):
            mine[row, slot], present[row, slot] = torch.tensor(point), True
    apart = torch.where(present[:, :, None], mine, torch.inf)
    x, y, heading = (torch.tensor(column) for column in zip(*vehicle, strict=True))
    place(env, x=x, y=y, heading=heading, target=target, mine=mine, mine_present=present,
          mine_x=apart[:, :, 0], mine_y=apart[:, :, 1])  # fmt: skip


def test_the_vehicle_turns_on_the_spot_or_moves_along_its_heading() -> None:
    env = Minefield(3, max_mines=2)
    start = (10.0, -20.0, math.pi / 2)
    lay_out(env, [start] * 3, [(90.0, 90.0)] * 3, [[]] * 3)
    observation, reward, terminated, _, _ = env.step([LEFT, FORWARD, RIGHT])
    expected = [
        [10.0, -20.0, math.pi * 5 / 8],
        [10.0, -17.0, math.pi / 2],
        [10.0, -20.0, math.pi * 3 / 8],
    ]
    np.testing.assert_allclose(observation["vehicle"][:, 0], expected, atol=1e-5)
    assert observation["step"][:, 0].tolist() == [np.float32(1 / 200)] * 3
    assert not reward.any()
    assert not terminated.any()


def test_sixteen_turns_are_a_full_circle_within_half_a_turn_either_way() -> None:
    env = Minefield(1, max_mines=1)
    lay_out(env, [(0.0, 0.0, 3.0)], [(90.0, 90.0)], [[]])
    seen = [float(env.step([LEFT])[0]["vehicle"][0, 0, 2]) for _ in range(16)]
    assert max(map(abs, seen)) <= math.pi + 1e-5
    assert seen[-1] == pytest.approx(3.0, abs=1e-5)


@pytest.mark.parametrize(
    ("target", "mines", "reward", "ends"),
    [
        ((7.9, 0.0), [], 1.0, True),  # the vehicle ends at (3, 0): 4.9 away
        ((8.1, 0.0), [], 0.0, False),
        ((50.0, 0.0), [(3.0, -4.9)], 0.0, True),
        ((50.0, 0.0), [(60.0, 9.0), (3.0, 5.1)], 0.0, False),
        ((50.0, 0.0), [(60.0, 9.0), (6.0, 0.0)], 0.0, True),
        ((4.0, 0.0), [(5.0, 0.0)], 1.0, True),  # the target counts even beside a mine
    ],
)
def test_within_five_units_target_and_mines_are_reached(
    target: tuple[float, float], mines: list[tuple[float, float]], reward: float, ends: bool
) -> None:
    env = Minefield(1, max_mines=3)
    lay_out(env, [(0.0, 0.0, 0.0)], [target], [mines])
    _, rewards, terminated, truncated, _ = env.step([FORWARD])
    assert (rewards.tolist(), terminated.tolist()) == ([reward], [ends])
    assert not truncated.any()


def test_an_absent_mine_does_no_harm_and_nothing_stops_at_the_border() -> None:
    env = Minefield(1, max_mines=2)
    lay_out(env, [(99.0, 0.0, 0.0)], [(-90.0, 0.0)], [[(-50.0, 0.0)]])
    for _ in range(4):
        observation, _, terminated, _, _ = env.step([FORWARD])
    assert observation["vehicle"][0, 0, 0] == pytest.approx(111.0)
    assert observation["mine"][0].tolist() == [[-50.0, 0.0], [0.0, 0.0]]
    assert observation["mine_mask"][0].tolist() == [1, 0]
    assert not terminated.any()


def test_time_runs_out_without_a_termination() -> None:
    env = Minefield(1, max_mines=1, max_episode_steps=7)
    lay_out(env, [(0.0, 0.0, 0.0)], [(90.0, 90.0)], [[]])
    results = [env.step([RIGHT])[2:4] for _ in range(7)]
    assert [bool(truncated) for _, truncated in results] == [False] * 6 + [True]
    assert not any(terminated for terminated, _ in results)


@pytest.mark.parametrize("max_mines", [10, 64])
def test_candidates_closer_than_fifteen_to_what_is_kept_are_dropped(max_mines: int) -> None:
    env, candidates = Minefield(11, max_mines=max_mines), Minefield(11, max_mines=max_mines)
    env.reset(seed=9)
    candidates.reset(seed=9)
    drawn = candidates._streams.rng(0).uniform(2 * max_mines + 5, low=-1.0, high=1.0)
    points = (drawn[:, 1:].view(11, -1, 2) * 100.0).double()
    for row in range(11):
        kept = [points[row, 0], points[row, 1]]
        present = []
        for point in points[row, 2:]:
            present.append(all((point - other).norm() >= 15.0 for other in kept))
            kept += [point] if present[-1] else []
        assert env.state["mine_present"][row].tolist() == present


@pytest.mark.parametrize(("max_mines", "expected"), [(10, 8.9), (64, 40.0)])
def test_as_many_mines_remain_as_stated(max_mines: int, expected: float) -> None:
    env = Minefield(300, max_mines=max_mines)
    observation, _ = env.reset(seed=0)
    assert abs(observation["mine_mask"].sum(1).mean() - expected) < 0.02 * max_mines


def test_random_driving_returns_what_the_score_calls_zero() -> None:
    assert agrees(first_returns(Minefield(2000), random), Minefield.random_return)


@pytest.mark.parametrize("max_mines", [10, 64])
def test_the_planner_reaches_the_target(max_mines: int) -> None:
    # It fails in 2 of 10,000 episodes or less: 2 of 200 have probability below .001.
    assert first_returns(Minefield(200, max_mines=max_mines), reference).mean() >= 0.99


def test_the_vehicle_s_frame_is_named() -> None:
    frame = Minefield(1).entity_schema.frame
    assert frame is not None
    assert (frame.group, frame.heading) == ("vehicle", ("heading",))
