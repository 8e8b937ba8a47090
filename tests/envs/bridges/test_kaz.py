"""knights-archers-zombies as entities, against the state of its game."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="pettingzoo is missing: pip install entity-encoder[envs]")
pytest.importorskip("pygame", reason="pygame is missing: pip install pygame-ce")

from entity_encoder.envs.bridges.kaz import KazView, make_kaz


def test_rows_are_what_stands_in_the_game_and_nobody_sees_itself_twice() -> None:
    env = make_kaz(1, num_archers=1, num_knights=2, max_zombies=7, max_arrows=3, spawn_delay=2)
    rng = np.random.default_rng(0)
    observation, infos = env.reset(seed=4)
    counts = {"archer": 1, "knight": 2, "sword": 2, "arrow": 3, "zombie": 7}
    assert env.agents == ("archer_0", "knight_0", "knight_1")
    seen = set()
    for _ in range(90):
        assert observation in env.observation_space
        game: Any = env.copies[0].unwrapped
        state = game.state()  # rows: archers, knights, swords, arrows, zombies; 6 kinds, x, y, ...
        start = 0
        for name, count in counts.items():
            there = state[start : start + count]
            present = there[:, :6].any(axis=1)
            for row, agent in enumerate(env.agents):
                if infos["absent"][row] or agent not in game.agents:
                    continue
                own = observation["self"][row, 0]
                expected = present.copy()
                if agent.startswith(name):
                    expected[int(agent[-1])] = False
                assert observation[f"{name}_mask"][row].tolist() == expected.tolist()
                np.testing.assert_allclose(
                    observation[name][row, expected, 1:3],
                    there[expected, 6:8] - own[1:3],
                    atol=1e-6,
                )
                np.testing.assert_allclose(
                    observation[name][row, expected, 3:], there[expected, 8:], atol=1e-6
                )
                assert own[-1] == (row == 0)
                if expected.any():
                    seen.add(name)
            start += count
        action = rng.choice([4, 4, 0, 2, 3], env.num_envs)
        observation, _, _, _, infos = env.step(action)
    assert seen == set(counts)


def test_the_dead_leave_and_their_rows_stay_empty_until_the_next_game() -> None:
    env = make_kaz(1, max_zombies=20, spawn_delay=1, max_cycles=900)
    env.reset(seed=0)
    idle = np.full(env.num_envs, 5)
    died = None
    for _ in range(900):
        observation, reward, terminated, truncated, infos = env.step(idle)
        if infos["absent"].any() and died is None and not infos["absent"].all():
            died = infos["absent"].copy()
            assert terminated[died].all()
            observation, reward, terminated, truncated, infos = env.step(idle)
            assert (observation["zombie_mask"][died] == 0).all()
            assert (reward[died] == 0).all()
            assert terminated[died].all()
        if infos["absent"].all():
            break
    assert infos["absent"].all()
    observation, _, terminated, truncated, infos = env.step(idle)
    assert not infos["absent"].any()
    assert not (terminated | truncated).any()
    assert observation["self_mask"].all()


def test_groups_of_nobody_are_left_out() -> None:
    view = KazView(archers=0, knights=1, zombies=2, arrows=0)
    assert [group.name for group in view.entity_schema.groups] == [
        "self",
        "knight",
        "sword",
        "zombie",
    ]


def test_another_table_names_the_versions() -> None:
    view = KazView(1, 1, 1, 1)
    with pytest.raises(ValueError, match=r"shape \(6, 11\), got \(6, 5\); pettingzoo .* 1\.27\.0"):
        view.observe("knight_0", np.zeros((6, 5)))
    with pytest.raises(ValueError, match=r"row 0 must be the agent itself, got kind columns \[0\."):
        view.observe("knight_0", np.zeros((6, 11)))
