from typing import Any

import pytest
import torch

from entity_encoder import EntityEncoder
from entity_encoder.envs.tasks.multi_snake import LONGEST, MultiSnake
from tests.envs.tasks.play import agrees, first_returns, place, random, reference

UP, RIGHT, DOWN, LEFT = range(4)
SIZE = 6


def lay_out(
    snakes: list[list[tuple[int, int]]], foods: list[tuple[int, int]], **options: Any
) -> MultiSnake:
    """Place snakes, head first, and food by (x, y); colours in the order given."""
    k = len(snakes)
    env = MultiSnake(1, num_snakes=k, size=SIZE, shuffle_slots=False, **options)
    cells = [[SIZE * y + x for x, y in snake] for snake in snakes]
    padded = [row + row[-1:] * (LONGEST - len(row)) for row in cells]
    food = [SIZE * y + x for x, y in foods]
    place(env, cells=[padded], length=[[len(row) for row in cells]], food=[food])
    return env


def shown(observation: dict[str, Any], group: str) -> list[list[float]]:
    """Return the rows of the entities that are there."""
    mask = observation[f"{group}_mask"][0].astype(bool)
    rows: list[list[float]] = observation[group][0][mask].tolist()
    return rows


def test_its_places_form_a_grid_which_the_default_policy_sees() -> None:
    schema = MultiSnake(1).entity_schema
    assert schema.grid == 1.0
    assert EntityEncoder(schema, d_model=32, n_heads=2).rotary is not None


def test_the_body_follows_the_head() -> None:
    env = lay_out([[(2, 2), (2, 1), (3, 1)]], [(0, 5)])
    observation, reward, terminated, _, _ = env.step([[LEFT]])
    assert shown(observation, "head") == [[1, 2, 0]]
    assert shown(observation, "body") == [[2, 2, 0], [2, 1, 0]]
    assert shown(observation, "food") == [[0, 5, 0]]
    assert observation["step"].tolist() == [[pytest.approx(1 / 180)]]
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])


def test_directions_are_up_right_down_left_with_y_upwards() -> None:
    moved = []
    for action in (UP, RIGHT, DOWN, LEFT):
        env = lay_out([[(2, 3)]], [(5, 5)])
        moved += shown(env.step([[action]])[0], "head")
    assert moved == [[2, 4, 0], [3, 3, 0], [2, 2, 0], [1, 3, 0]]


def test_a_meal_of_its_own_colour_makes_a_snake_grow_and_pays() -> None:
    env = lay_out([[(2, 2), (2, 1)], [(5, 5)]], [(3, 2), (0, 0)])
    observation, reward, terminated, _, _ = env.step([[RIGHT, DOWN]])
    assert shown(observation, "head") == [[3, 2, 0], [5, 4, 1]]
    assert shown(observation, "body") == [[2, 2, 0], [2, 1, 0]]
    assert reward[0] == pytest.approx(1 / 20)
    assert not terminated.any()
    fresh, other = shown(observation, "food")
    assert other == [0, 0, 1]
    assert fresh[2] == 0
    assert fresh[:2] not in [[3, 2], [2, 2], [2, 1], [5, 4], [0, 0]]


@pytest.mark.parametrize(
    ("snakes", "foods", "actions"),
    [
        ([[(0, 3)]], [(5, 5)], [LEFT]),  # the wall
        ([[(3, 5)]], [(5, 5)], [UP]),
        ([[(2, 2), (2, 1), (3, 1), (3, 2)]], [(5, 5)], [RIGHT]),  # its own tail
        ([[(2, 2)], [(3, 3), (3, 2)]], [(5, 5), (0, 0)], [RIGHT, UP]),  # another's body
        ([[(2, 2)], [(3, 2)]], [(5, 5), (0, 0)], [RIGHT, UP]),  # another's head
        ([[(2, 2)], [(5, 0)]], [(5, 5), (3, 2)], [RIGHT, UP]),  # another's food
        ([[(2, 2)], [(3, 4)]], [(5, 5), (0, 0)], [UP, LEFT]),  # see below: this one goes on
    ],
)
def test_wall_bodies_and_wrong_food_end_the_game(
    snakes: list[list[tuple[int, int]]], foods: list[tuple[int, int]], actions: list[int]
) -> None:
    env = lay_out(snakes, foods)
    _, reward, terminated, truncated, _ = env.step([actions])
    assert terminated.tolist() == [actions != [UP, LEFT]]
    assert not reward.any()
    assert not truncated.any()


def test_heads_move_in_the_order_of_their_slots() -> None:
    # The first leaves its place before the second enters it; the other way round they collide.
    assert not lay_out([[(2, 2)], [(1, 2)]], [(5, 5), (0, 0)]).step([[UP, RIGHT]])[2].any()
    assert lay_out([[(1, 2)], [(2, 2)]], [(5, 5), (0, 0)]).step([[RIGHT, UP]])[2].all()


def test_no_meal_is_paid_after_the_collision() -> None:
    env = lay_out([[(0, 3)], [(2, 2)]], [(5, 5), (3, 2)])
    _, reward, terminated, _, _ = env.step([[LEFT, RIGHT]])
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [True])


def snake_of(length: int) -> list[tuple[int, int]]:
    """Wind along the two lowest rows, head at the end of the upper one."""
    way = [(x, 0) for x in range(SIZE)] + [(x, 1) for x in range(SIZE - 1, -1, -1)]
    return way[:length][::-1]


def test_the_game_is_won_when_all_are_eleven_long() -> None:
    env = lay_out([snake_of(10)], [(1, 1)])  # the head is at (2, 1)
    _, reward, terminated, _, _ = env.step([[LEFT]])
    assert reward[0] == pytest.approx(0.1)
    assert terminated.all()


def test_a_grown_snake_eats_without_growing_or_pay() -> None:
    env = lay_out([snake_of(11), [(5, 5)]], [(0, 1), (0, 5)])  # the head is at (1, 1)
    observation, reward, terminated, _, _ = env.step([[LEFT, LEFT]])
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])
    assert len(shown(observation, "body")) == 10
    assert shown(observation, "food")[0] != [0, 1, 0]


def test_time_runs_out_after_180_steps() -> None:
    env = lay_out([[(2, 2)]], [(5, 5)])
    ends = [env.step([[(UP, RIGHT, DOWN, LEFT)[t % 4]]])[2:4] for t in range(180)]
    assert not any(terminated for terminated, _ in ends)
    assert [bool(truncated) for _, truncated in ends] == [False] * 179 + [True]


@pytest.mark.parametrize("num_snakes", [1, 3])
def test_heads_and_food_begin_on_different_places(num_snakes: int) -> None:
    env = MultiSnake(500, num_snakes=num_snakes)
    env.reset(seed=0)
    places = torch.cat((env.state["cells"][:, :, 0], env.state["food"]), 1).sort(1).values
    assert (places.diff(dim=1) > 0).all()
    assert places.min() == 0
    assert places.max() == 99


def test_new_food_appears_on_any_free_place() -> None:
    env = MultiSnake(3000, size=5, shuffle_slots=False)
    head = torch.full((3000, 1, LONGEST), 12)
    place(env, cells=head, food=torch.full((3000, 1), 13))
    env.step([[RIGHT]] * 3000)
    counts = torch.bincount(env.state["food"][:, 0], minlength=25)
    assert counts[[12, 13]].tolist() == [0, 0]  # body and head
    free = counts[counts > 0]
    assert len(free) == 23
    assert ((free - 3000 / 23).abs() <= 4 * (3000 / 23) ** 0.5).all()


@pytest.mark.parametrize(("num_snakes", "expected"), [(1, 0.0095), (3, 0.0022)])
def test_random_moves_return_what_the_score_calls_zero(num_snakes: int, expected: float) -> None:
    env = MultiSnake(400, num_snakes=num_snakes)
    assert env.random_return == pytest.approx(expected, rel=0.05)
    assert agrees(first_returns(env, random), env.random_return)


def test_the_reference_feeds_the_snakes() -> None:
    assert first_returns(MultiSnake(8), reference).mean() > 0.98  # 1.000 over 500 episodes
    # .926 +- .007 over 500 episodes with a standard deviation of .15: for 6 within .24
    assert first_returns(MultiSnake(6, num_snakes=2), reference).mean() > 0.68
