import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder.envs.tasks.sorter import Sorter
from tests.envs.tasks.play import agrees, first_returns, place, random, reference

STAY, UP, RIGHT, DOWN, LEFT = range(5)


def lay_out(env: Sorter, agent: tuple[float, float], *tiles: tuple[float, float, int]) -> None:
    """Place the agent and tiles (x, y, number) from slot 1 on: slot 0 is empty."""
    n = env.max_tiles
    rows = [(0.0, 0.0, 0), *tiles] + [(0.0, 0.0, 0)] * (n - 1 - len(tiles))
    present = [0 < slot <= len(tiles) for slot in range(n)]
    place(
        env,
        place=[agent],
        tile=[[row[:2] for row in rows]],
        number=[[row[2] for row in rows]],
        present=[present],
        waiting=[present],
        count=[len(tiles)],
        left=[len(tiles)],
    )


def test_the_agent_moves_by_one_and_stops_at_the_border() -> None:
    env = Sorter(1, max_tiles=4)
    lay_out(env, (6.0, -7.0), (-3.0, 3.0, 4), (-3.0, -3.0, 9))
    ways = {UP: (6.0, -6.0), RIGHT: (7.0, -6.0), LEFT: (6.0, -6.0), STAY: (6.0, -6.0)}
    for action, (x, y) in ways.items():
        observation, reward, terminated, _, _ = env.step([action])
        assert observation["agent"].tolist() == [[[x, y]]]
        assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])
    assert [env.step([DOWN])[0]["agent"][0, 0, 1] for _ in range(3)] == [-7.0, -7.5, -7.5]
    assert [env.step([RIGHT])[0]["agent"][0, 0, 0] for _ in range(3)] == [7.0, 7.5, 7.5]


def test_a_vector_longer_than_one_is_shortened() -> None:
    env = Sorter(1, max_tiles=4, continuous=True)
    lay_out(env, (0.0, 0.0), (-3.0, 3.0, 4), (-3.0, -3.0, 9))
    assert isinstance(env.single_action_space, spaces.Box)
    steps = {(0.3, -0.4): (0.3, -0.4), (1.0, 1.0): (0.3 + 0.5**0.5, -0.4 + 0.5**0.5)}
    for action, expected in steps.items():
        observation, *_ = env.step(np.array([action], np.float32))
        np.testing.assert_allclose(observation["agent"][0, 0], expected, atol=1e-6)


def test_visits_in_ascending_order_pay_equal_shares() -> None:
    env = Sorter(1, max_tiles=4)
    lay_out(env, (0.0, 0.0), (2.7, 0.0, 17), (1.4, 0.0, 3), (1.0, 1.7, 12))
    observation = env.observation()
    expected = [[0, 0, 0.0, 0], [2.7, 0, 17, 0], [1.4, 0, 3, 0], [1, 1.7, 12, 0]]
    np.testing.assert_allclose(observation["tile"][0], expected, atol=1e-6)
    assert observation["tile_mask"].tolist() == [[0, 1, 1, 1]]
    results = []
    for action in (RIGHT, UP, DOWN, RIGHT):  # the second and the third time at (1, 0): 3 again
        observation, reward, terminated, _, _ = env.step([action])
        results.append((round(float(reward[0]), 6), bool(terminated[0])))
    third = round(1 / 3, 6)
    assert results == [(third, False), (third, False), (0.0, False), (third, True)]
    assert observation["tile"][0, :, 3].tolist() == [0, 1, 1, 1]
    assert observation["step"][0, 0] == np.float32(4 / 400)


@pytest.mark.parametrize(
    ("distance", "reward", "ends"), [(1.74, 0.5, False), (1.76, 0.0, False), (-1.74, 0.0, True)]
)
def test_tiles_are_touched_within_three_quarters_and_a_later_one_ends_it(
    distance: float, reward: float, ends: bool
) -> None:
    env = Sorter(1, max_tiles=3)
    first, second = ((distance, 0.0), (6.0, 6.0))[:: 1 if distance > 0 else -1]
    lay_out(env, (0.0, 0.0), (*first, 5), (*second, 8))
    _, rewards, terminated, truncated, _ = env.step([RIGHT if distance > 0 else LEFT])
    assert (rewards.tolist(), terminated.tolist()) == ([reward], [ends])
    assert not truncated.any()


def test_time_runs_out_without_a_termination() -> None:
    env = Sorter(1, max_tiles=3, max_episode_steps=3)
    env.reset(seed=0)
    ends = [[bool(flag[0]) for flag in env.step([STAY])[2:4]] for _ in range(3)]
    assert ends == [[False, False], [False, False], [False, True]]


def test_layouts_are_drawn_as_stated() -> None:
    env = Sorter(1900, max_tiles=20)
    observation, _ = env.reset(seed=0)
    mask = torch.tensor(observation["tile_mask"]).bool()
    counts = torch.bincount(mask.sum(1), minlength=21)[2:]
    assert ((counts - 100).abs() <= 4 * (1900 / 19 * 18 / 19) ** 0.5).all()
    tile = torch.tensor(observation["tile"])
    for row in range(200):
        numbers = tile[row, mask[row], 2].long().tolist()
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= set(range(1, 21))
        points = torch.cat((tile[row, mask[row], :2], torch.tensor(observation["agent"][row])))
        cell = (points / 3.0).round()
        assert len(set(map(tuple, cell.tolist()))) == len(points)
        assert cell.abs().max() <= 2
        assert (points - 3.0 * cell).abs().max() <= 0.25
    drawn = torch.bincount(tile[..., 2][mask].long(), minlength=21)[1:].double()
    assert drawn.std() / drawn.mean() < 0.05


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(
    "options", [{"max_tiles": 2}, {"max_tiles": 7}, {"max_tiles": 20, "min_tiles": 20}]
)
def test_the_reference_visits_all_tiles(options: dict[str, int], continuous: bool) -> None:
    env = Sorter(25, continuous=continuous, **options)
    returns = first_returns(env, reference)
    torch.testing.assert_close(returns, torch.ones(25).double(), atol=1e-5, rtol=0.0)
    assert env.optimum(env.state).eq(1.0).all()


def steps_to_first(place: np.ndarray, tiles: np.ndarray, first: int) -> int:
    """Search, ring by ring, for the first tile; tiles (n, 2)."""
    seen, ring, steps = {(0, 0)}, [(0, 0)], 0
    while ring:
        steps += 1
        moved = {(i + dx, j + dy) for i, j in ring for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0))}
        ring = []
        for way in moved - seen:
            seen.add(way)
            point = place + way
            touched = np.hypot(*(tiles - point).T) <= 0.75
            if touched[first]:
                return steps
            if not touched.any() and np.abs(point).max() <= 7.5:
                ring.append(way)
    raise AssertionError("the first tile must be within reach")


def test_the_reference_goes_the_shortest_way_around_later_tiles() -> None:
    env = Sorter(40, max_tiles=20, min_tiles=20, autoreset_mode="DISABLED")
    env.reset(seed=6)
    places = env.state["place"].double().numpy()
    tiles = env.state["tile"].double().numpy()
    first = env.state["number"].argmin(1).tolist()
    expected = [steps_to_first(*case) for case in zip(places, tiles, first, strict=True)]
    taken = torch.zeros(40, dtype=torch.int64)
    while bool((env.state["left"] == 20).any()):
        taken += env.state["left"] == 20
        env.step(reference(env))
    assert taken.tolist() == expected


@pytest.mark.parametrize(
    "options", [{}, {"max_tiles": 2}, {"max_tiles": 9, "min_tiles": 7}, {"max_tiles": 20}]
)
@pytest.mark.parametrize("continuous", [False, True])
def test_random_moves_return_what_the_score_calls_zero(
    options: dict[str, int], continuous: bool
) -> None:
    env = Sorter(600, continuous=continuous, **options)
    assert agrees(first_returns(env, random), env.random_return, slack=0.001)


def test_the_agent_s_frame_is_named() -> None:
    frame = Sorter(1).entity_schema.frame
    assert frame is not None
    assert (frame.group, frame.heading) == ("agent", ())
