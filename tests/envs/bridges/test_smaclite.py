"""smaclite as entities, against the units of its battles."""

import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from entity_encoder.agents.environments import Environments
from entity_encoder.envs.bridges.registration import SMACLITE_MAPS
from entity_encoder.envs.bridges.smaclite import SmacliteView, make_smaclite

SIGHT = 9.0


def test_a_missing_package_names_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "smaclite.env.smaclite", None)
    with pytest.raises(
        ImportError, match=r"needs smaclite: pip install --no-deps .* install rtree"
    ):
        make_smaclite()


def test_columns_stand_where_the_layout_says() -> None:
    view = SmacliteView(3, 2, 2, enemy_shields=True, numbers=False)
    flat = np.arange(1, 4 + 2 * 8 + 2 * 7 + 3 + 1, dtype=np.float32)
    cut = view.observe("ally_1", flat)
    assert cut["self"].tolist() == [[1, 2, 3, 4, 35, 36, 37]]
    assert cut["enemy"].tolist() == [[*range(5, 13)], [*range(13, 21)]]
    assert cut["ally"].tolist() == [[*range(21, 28)], [*range(28, 35)]]
    names = {group.name: group.features for group in view.entity_schema.groups}
    assert names["enemy"] == (
        *("attackable", "distance", "x", "y", "hp", "shield", "kind_0", "kind_1"),
    )
    assert names["ally"] == ("visible", "distance", "x", "y", "hp", "kind_0", "kind_1")


def test_an_enemy_out_of_range_is_present_and_one_without_health_is_not() -> None:
    view = SmacliteView(2, 3, numbers=False)
    flat = np.zeros(4 + 3 * 5 + 5 + 1, np.float32)
    flat[-1] = 1
    flat[4:9] = [0, 0.9, 0.9, 0, 0.5]  # in sight, not attackable
    flat[9:14] = [1, 0.9, 0.9, 0, 0.0]
    cut = view.observe("ally_0", flat)
    assert cut["enemy_mask"].tolist() == [1, 0, 0]
    assert (cut["enemy"][1:] == 0).all()
    assert cut["self_mask"].tolist() == [1]


def test_the_dead_observe_the_empty_set() -> None:
    cut = SmacliteView(2, 3, 2, healers=True).observe("ally_0", np.zeros(4 + 21 + 7 + 3))
    assert not any(value.any() for value in cut.values())


def test_numbers_say_which_entity_an_action_aims_at() -> None:
    view = SmacliteView(4, 2, healers=True)
    width = 4 + 2 * 5 + 3 * 5 + 1
    cut = view.observe("ally_2", np.ones(width, np.float32))
    assert cut["enemy"][:, 5:].tolist() == [[1, 0], [0, 1]]
    # Allies seen by number 2 are 0, 1 and 3.
    assert cut["ally"][:, 5:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    assert SmacliteView(4, 2).observe("ally_2", np.ones(width))["ally"].shape == (3, 5)


def test_another_width_names_the_versions() -> None:
    with pytest.raises(
        ValueError, match=r"must have 25 columns, got 24; smaclite .* known to work: 0\.0\.1"
    ):
        SmacliteView(2, 3).observe("ally_0", np.zeros(24))


try:
    import smaclite.env.maps.map as smaclite_maps
except ImportError:
    smaclite_maps = None
needs_smaclite = pytest.mark.skipif(
    smaclite_maps is None,
    reason="smaclite is missing: pip install --no-deps git+https://github.com/uoe-agents/smaclite",
)


def walk(env: Any, steps: int, seed: int = 0, attack: bool = True) -> Iterator[tuple[Any, ...]]:
    """Yield what `step` returns, of random legal actions, attacks preferred."""
    rng = np.random.default_rng(seed)
    observation, infos = env.reset(seed=seed)
    yield observation, None, None, None, infos
    for _ in range(steps):
        lottery = rng.random(observation["action_mask"].shape) * observation["action_mask"]
        lottery[:, 6:] *= 3 if attack else 0
        result = env.step(lottery.argmax(1))
        observation = result[0]
        yield result


def expected_row(agent: Any, unit: Any, flag: float, battle: Any, shields: bool) -> list[float]:
    """Describe a unit from the battle's state as an agent sees it."""
    offset = unit.pos.astype(np.float64) - agent.pos
    row = [flag, np.hypot(*offset) / SIGHT, *(offset / SIGHT), unit.hp / unit.max_hp]
    row += [unit.shield / unit.max_shield] if shields else []
    kinds = battle.map_info.num_unit_types
    row += np.eye(kinds)[battle.map_info.unit_type_ids[unit.type]].tolist() if kinds else []
    return row


@needs_smaclite
@pytest.mark.parametrize("name", ["2s3z", "MMM", "2s_vs_1sc", "3s_vs_5z"])
def test_entities_are_the_units_of_the_battle(name: str) -> None:
    env = make_smaclite(1, name)
    battle = env.copies[0].unwrapped
    info = battle.map_info
    seen = {"dead": 0, "enemy": 0, "hidden": 0, "out of range": 0}
    for observation, *_, infos in walk(env, 45):
        assert observation in env.observation_space
        if infos["absent"].any():
            continue  # a battle is over: the next step begins another
        masks = battle.get_avail_actions()
        for row in range(env.num_envs):
            np.testing.assert_array_equal(observation["action_mask"][row], masks[row])
            agent = battle.agents.get(row)
            assert observation["self_mask"][row].tolist() == [agent is not None]
            if agent is None:
                assert observation["action_mask"][row].nonzero()[0].tolist() == [0]
                assert not observation["enemy_mask"][row].any()
                seen["dead"] += 1
                continue
            own = expected_row(agent, agent, 0, battle, info.ally_has_shields)[4:]
            np.testing.assert_allclose(
                observation["self"][row, 0], [*masks[row][2:6], *own], atol=1e-5
            )
            heals = agent.combat_type.name == "HEALING"
            for number in range(battle.n_enemies):
                enemy = battle.enemies.get(number)
                visible = enemy is not None and np.hypot(*(enemy.pos - agent.pos)) < SIGHT
                assert observation["enemy_mask"][row, number] == visible
                if not visible:
                    assert not observation["enemy"][row, number].any()
                    seen["hidden"] += 1
                    continue
                flag = observation["enemy"][row, number, 0]
                if not heals:
                    assert flag == masks[row][6 + number]
                    seen["out of range"] += flag == 0
                wanted = expected_row(agent, enemy, flag, battle, info.enemy_has_shields)
                wanted += np.eye(battle.n_enemies)[number].tolist()
                np.testing.assert_allclose(observation["enemy"][row, number], wanted, atol=1e-5)
                seen["enemy"] += 1
            others = [i for i in range(battle.n_agents) if i != row]
            for slot, number in enumerate(others):
                ally = battle.agents.get(number)
                visible = ally is not None and np.hypot(*(ally.pos - agent.pos)) < SIGHT
                assert observation["ally_mask"][row, slot] == visible
                if visible:
                    wanted = expected_row(agent, ally, 1, battle, info.ally_has_shields)
                    wanted += np.eye(battle.n_agents)[number].tolist() if name == "MMM" else []
                    np.testing.assert_allclose(observation["ally"][row, slot], wanted, atol=1e-5)
    assert all(seen.values()), seen


@needs_smaclite
def test_rewards_and_ends_are_the_original_s_and_the_dead_share_them() -> None:
    env = make_smaclite(1, "2s3z", max_episode_steps=None)
    original = type(env.copies[0].unwrapped)(map_info=smaclite_maps.MapPreset.MAP_2S3Z.value)
    rng = np.random.default_rng(4)
    observation, _ = env.reset(seed=6)
    original.reset(seed=6)
    died, ended = False, False
    while not ended:
        mask = observation["action_mask"]
        actions = (rng.random(mask.shape) * mask).argmax(1)
        theirs, reward, ended, _, _ = original.step(actions.tolist())
        observation, rewards, terminated, truncated, infos = env.step(actions)
        assert rewards.tolist() == [reward] * 5
        assert terminated.tolist() == [ended] * 5
        assert not truncated.any()
        health = np.array([row[-3 - 1] for row in theirs])
        np.testing.assert_array_equal(observation["self_mask"][:, 0], health > 0)
        died |= bool((health == 0).any()) and not ended
    assert died
    assert infos["absent"].all()
    observation, rewards, terminated, _, infos = env.step(np.zeros(5, np.int64))
    assert observation["self_mask"].all()
    assert not (infos["absent"] | terminated | rewards.astype(bool)).any()


@needs_smaclite
def test_a_battle_is_cut_off_and_begins_anew() -> None:
    env = make_smaclite(2, "2s_vs_1sc", max_episode_steps=3)
    cuts = [result[3] for result in walk(env, 8, attack=False)][1:]
    assert [cut.tolist() for cut in cuts] == [[k % 4 == 2] * 4 for k in range(8)]


@needs_smaclite
def test_the_same_seed_is_the_same_walk_over_several_battles() -> None:
    walks = [list(walk(make_smaclite(2, max_episode_steps=6), 14, 9)) for _ in range(2)]
    for a, b in zip(*walks, strict=True):
        for key, value in a[0].items():
            np.testing.assert_array_equal(value, b[0][key])


@needs_smaclite
def test_what_the_dead_choose_is_not_looked_at_and_illegal_actions_are_refused() -> None:
    env = make_smaclite(1)
    env.reset(seed=0)
    battle = env.copies[0].unwrapped
    with pytest.raises(ValueError, match="Invalid action for agent 0: 0"):
        env.step(np.zeros(5, np.int64))
    env.reset(seed=0)
    battle.agents[3].hp = 0
    battle._SMACliteEnv__update_deaths()
    for finder in (battle.neighbour_finder_all, battle.neighbour_finder_ally):
        finder.update()
    observation, *_ = env.step(np.array([1, 1, 1, 7, 1]))
    assert observation["self_mask"][:, 0].tolist() == [1, 1, 1, 0, 1]


@needs_smaclite
def test_every_map_has_an_id_and_the_trainer_reads_it() -> None:
    assert set(SMACLITE_MAPS) == {preset.value.name for preset in smaclite_maps.MapPreset}
    for name in SMACLITE_MAPS:
        env: Any = gymnasium.make_vec(f"Bridge/smaclite-{name}-v0", 1, max_episode_steps=2)
        envs = Environments(env)
        envs.reset(seed=0)
        stop = torch.ones(env.num_envs, dtype=torch.int64)
        steps = [envs.step(stop) for _ in range(3)]
        assert [bool(step.valid.all()) for step in steps] == [True, True, False]


@needs_smaclite
def test_a_map_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"one of \['10m_vs_11m'.*got '2s3zz'.*2s3z"):
        make_smaclite(1, "2s3zz")
