import pytest
import torch

from entity_encoder.envs.tasks.skirmish import Skirmish
from entity_encoder.envs.tasks.skirmish.battle import KINDS
from tests.envs.tasks.skirmish.field import (
    ATTACK,
    DOWN,
    HEAL,
    HEALER,
    LEFT,
    MELEE,
    RANGED,
    RIGHT,
    STAY,
    UP,
    Unit,
    lay_out,
)

FAR: Unit = (16.0, 16.0, RANGED, 5.0)


def test_units_move_at_their_speed_and_stop_at_the_border() -> None:
    allies: list[Unit] = [(4.0, 4.0, RANGED, 5.0), (4.0, 0.5, MELEE, 10.0), (0.3, 4.0, HEALER, 5.0)]
    env = lay_out(allies, [FAR])
    env.step([[RIGHT, DOWN, LEFT, STAY]])
    observation = env.step([[UP, RIGHT, DOWN, STAY]])[0]
    expected = [[5.0, 5.0], [5.25, 0.0], [0.0, 3.0], [0.0, 0.0]]
    assert observation["ally"][0, :, :2].tolist() == expected
    assert observation["ally_mask"].tolist() == [[1, 1, 1, 0]]
    assert observation["step"].tolist() == [[pytest.approx(2 / 60)]]


def test_rows_tell_place_health_and_kind() -> None:
    env = lay_out([(4.0, 4.0, MELEE, 3.5)], [(5.0, 6.0, HEALER, 2.0)])
    observation = env.observation()
    assert observation["ally"][0].tolist() == [[4, 4, 3.5, 0, 1, 0], [0] * 6]
    assert observation["enemy"][0].tolist() == [[5, 6, 2, 0, 0, 1], [0] * 6]


def test_the_mask_says_who_can_do_what() -> None:
    allies: list[Unit] = [
        (4.0, 4.0, RANGED, 4.0),  # reaches 4.5
        (8.0, 4.0, MELEE, 10.0),  # reaches 1.5
        (4.0, 8.5, HEALER, 4.0),  # reaches 4.5, but not itself
        (12.0, 12.0, HEALER, 5.0),
    ]
    enemies: list[Unit] = [(8.6, 4.0, MELEE, 1.0), (9.5, 4.0, MELEE, 1.0), (4.0, 0.0, HEALER, 1.0)]
    mask = lay_out(allies, enemies).observation()["action_mask"][0]
    assert mask[:4, :HEAL].all()
    assert mask[:, HEAL].tolist() == [0, 0, 1, 0, 0]
    assert mask[:, ATTACK:].tolist() == [[0, 0, 1, 0, 0], [1, 1, 0, 0, 0], *[[0] * 5] * 3]
    assert mask[4].tolist() == [1] + [0] * 10  # absent


def test_what_all_do_counts_at_once() -> None:
    # Each fells the other: both leave, nobody wins.
    env = lay_out([(4.0, 4.0, RANGED, 1.0)], [(6.0, 4.0, RANGED, 1.0)], [ATTACK])
    observation, reward, terminated, _, infos = env.step([[ATTACK, STAY]])
    assert not observation["ally_mask"].any()
    assert not observation["enemy_mask"].any()
    assert reward[0] == pytest.approx(0.5 * 1 / 5)
    assert terminated.all()
    assert (infos["success"].tolist(), infos["_success"].tolist()) == ([0.0], [True])


def test_harm_adds_up_and_the_last_enemy_s_fall_wins() -> None:
    allies: list[Unit] = [(4.0, 4.0, RANGED, 5.0), (5.0, 4.0, MELEE, 10.0)]
    env = lay_out(allies, [(6.0, 4.0, MELEE, 4.0), (8.0, 4.0, RANGED, 1.0)])
    observation, reward, terminated, _, infos = env.step([[ATTACK, ATTACK, STAY]])
    assert observation["enemy"][0, :, 2].tolist() == [4.0 - 1.0 - 1.5, 1.0, 0.0]
    assert reward[0] == pytest.approx(0.5 * 2.5 / 15)
    assert not terminated.any()
    assert "success" not in infos
    _, reward, terminated, _, infos = env.step([[ATTACK + 1, ATTACK, STAY]])
    assert reward[0] == pytest.approx(0.5 * 2.5 / 15 + 0.5)
    assert terminated.all()
    assert (infos["success"].tolist(), infos["_success"].tolist()) == ([1.0], [True])


def test_healers_mend_the_most_hurt_fellow_but_not_beyond_its_health() -> None:
    allies: list[Unit] = [
        (4.0, 4.0, HEALER, 1.0),
        (5.0, 4.0, MELEE, 8.0),  # lost 2
        (6.0, 4.0, RANGED, 4.5),  # lost .5
        (9.0, 4.0, MELEE, 1.0),  # lost 9, out of reach
    ]
    env = lay_out(allies, [FAR])
    healths = [env.step([[HEAL, STAY, STAY, STAY, STAY]])[0]["ally"][0, :, 2] for _ in range(3)]
    assert [row.tolist() for row in healths] == [
        [1.0, 9.0, 4.5, 1.0, 0.0],
        [1.0, 10.0, 4.5, 1.0, 0.0],
        [1.0, 10.0, 5.0, 1.0, 0.0],
    ]
    with pytest.raises(ValueError, match="action must be legal, got 5 in env 0, slot 0"):
        env.step([[HEAL, STAY, STAY, STAY, STAY]])


def test_what_enemies_mend_is_taken_from_the_reward() -> None:
    enemies: list[Unit] = [(12.0, 4.0, HEALER, 5.0), (13.0, 4.0, MELEE, 3.0)]
    env = lay_out([(1.0, 1.0, RANGED, 5.0)], enemies, [HEAL])
    _, reward, *_ = env.step([[STAY, STAY, STAY]])
    assert reward[0] == pytest.approx(-0.5 * 1 / 15)


def test_the_fallen_leave_the_set_and_cannot_be_attacked() -> None:
    enemies: list[Unit] = [(5.0, 4.0, RANGED, 1.0), (6.0, 4.0, RANGED, 5.0)]
    env = lay_out([(4.0, 4.0, RANGED, 5.0)], enemies)
    observation = env.step([[ATTACK, STAY, STAY]])[0]
    assert observation["enemy_mask"].tolist() == [[0, 1, 0]]
    assert not observation["enemy"][0, 0].any()
    with pytest.raises(ValueError, match=r"must be legal, got 6 in env 0, slot 0.*'action_mask'"):
        env.step([[ATTACK, STAY, STAY]])


def test_the_fallen_do_nothing_more() -> None:
    allies: list[Unit] = [(4.0, 4.0, RANGED, 1.0), (1.0, 1.0, RANGED, 5.0)]
    env = lay_out(allies, [(6.0, 4.0, RANGED, 5.0)], [ATTACK])
    env.step([[STAY, STAY, STAY]])
    observation = env.step([[RIGHT, UP, STAY]])[0]  # the first has fallen: what it does is ignored
    assert not observation["ally"][0, 0].any()
    assert torch.tensor(observation["ally"][0, 1, :2]).tolist() == [1.0, 2.0]


def test_kinds_are_as_the_page_says() -> None:
    page = Skirmish.__doc__ or ""
    for kind in KINDS:
        row = (
            f"| {kind.name} | {kind.health:g} | {kind.power:g} | {kind.reach:g} | {kind.speed:g} |"
        )
        assert row in page
