"""SMAX as entities, against the state of its battles."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import error

from entity_encoder.envs.bridges.registration import SMAX_SCENARIOS
from entity_encoder.envs.bridges.smax import make_smax, smax_layout


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxmarl.environments.smax.smax_env", None)
    with pytest.raises(ImportError, match="needs jaxmarl: pip install jaxmarl"):
        make_smax()


def test_allies_come_first_and_the_observer_last() -> None:
    layout = smax_layout(2, 1, kinds=1)
    flat = np.arange(1, 8 * 2 + 5 + 1, dtype=np.float32)
    cut = layout.split(flat)
    assert cut["ally"].tolist() == [[*range(1, 9)]]
    assert cut["enemy"].tolist() == [[*range(9, 17)]]
    assert cut["self"].tolist() == [[*range(17, 22)]]
    flat[[0, 16]] = 0  # neither the ally nor the observer has health
    cut = layout.split(flat)
    assert [int(cut[f"{name}_mask"][0]) for name in ("ally", "enemy", "self")] == [0, 1, 0]
    assert not cut["ally"].any()


def test_another_width_names_the_versions() -> None:
    with pytest.raises(ValueError, match=r"21 columns, got 20; jaxmarl .* known to work: 0\.2\.0"):
        smax_layout(2, 1, kinds=1).split(np.zeros(20))


try:
    import jaxmarl.environments.smax.smax_env as original
except ImportError:
    original = None
needs_smax = pytest.mark.skipif(original is None, reason="jaxmarl is missing: pip install jaxmarl")


def check_unit(env: Any, state: Any, row: int, seen: dict[str, np.ndarray]) -> int:
    """Compare what one unit observes with the state of its battle; return how many it sees."""
    smax, allies = env.smax, env.smax.num_allies
    units = np.arange(len(state.unit_alive))
    friends = units[:allies] if row < allies else units[allies:][::-1]
    foes = units[allies:] if row < allies else units[:allies][::-1]
    alive, where = np.asarray(state.unit_alive), np.asarray(state.unit_positions)
    kinds = np.asarray(state.unit_types)
    one_hot = np.eye(smax.unit_type_bits)
    share = np.asarray(state.unit_health) / np.asarray(smax.unit_type_health)[kinds]
    rest = np.asarray(state.unit_weapon_cooldowns)
    rest = np.clip(rest / np.asarray(smax.unit_type_weapon_cooldowns)[kinds], 0, 1)
    assert seen["self_mask"].tolist() == [alive[row]]
    if alive[row]:
        own = [share[row], *where[row] / [smax.map_width, smax.map_height], rest[row]]
        np.testing.assert_allclose(seen["self"][0], [*own, *one_hot[kinds[row]]], atol=1e-5)
    sight = float(smax.unit_type_sight_ranges[kinds[row]])
    count = 0
    for name, others in (("ally", friends[friends != row]), ("enemy", foes)):
        for slot, other in enumerate(others):
            offset = (where[other] - where[row]) / sight
            visible = alive[row] and alive[other] and np.hypot(*offset) < 1
            assert seen[f"{name}_mask"][slot] == visible
            if not visible:
                assert not seen[name][slot].any()
                continue
            choices = len(foes) if name == "ally" else len(friends)
            target = np.asarray(state.prev_attack_actions)[other] / (choices + 4)
            moved = np.asarray(state.prev_movement_actions)[other]
            expected = [share[other], *offset, *moved, target, rest[other], *one_hot[kinds[other]]]
            np.testing.assert_allclose(seen[name][slot, :13], expected, atol=1e-5)
            if name == "enemy":
                assert seen[name][slot, 13:].tolist() == np.eye(len(seen[name]))[slot].tolist()
            count += name == "enemy"
        assert not seen[f"{name}_mask"][len(others) :].any()
    legal = np.zeros(len(seen["action_mask"]))
    legal[4] = 1
    if alive[row]:
        legal[:4] = 1
        reach = float(smax.unit_type_attack_ranges[kinds[row]])
        near = np.hypot(*(where[foes] - where[row]).T) < reach
        legal[5 : 5 + len(foes)] = near & alive[foes]
    np.testing.assert_array_equal(seen["action_mask"], legal)
    return count


def battle_of(state: Any, w: int) -> Any:
    import jax

    return jax.tree.map(lambda leaf: np.asarray(leaf[w]), getattr(state, "state", state))


@needs_smax
@pytest.mark.slow  # jax compiles the battle for about 20 s
def test_a_walk_shows_the_battles_and_ends_as_they_do() -> None:
    env: Any = gymnasium.make_vec("Bridge/smax-3m-v0", 3, max_steps=16).unwrapped
    rng = np.random.default_rng(0)
    with pytest.raises(error.ResetNeeded, match="must be reset before it is stepped"):
        env.step(np.zeros(9, np.int64))
    observation, _ = env.reset(seed=5)
    first = {key: value.copy() for key, value in observation.items()}
    counts = {"enemies": 0, "dead": 0, "won or lost": 0, "time up": 0, "begun": 0}
    ended = np.zeros(3, bool)
    before = [battle_of(env.state, w) for w in range(3)]
    for _ in range(70):
        assert observation in env.observation_space
        lottery = rng.random(observation["action_mask"].shape) * observation["action_mask"]
        lottery[:, 5:] *= 3
        observation, reward, terminated, truncated, infos = env.step(lottery.argmax(1))
        now = [battle_of(env.state, w) for w in range(3)]
        for w, state in enumerate(now):
            rows = slice(3 * w, 3 * w + 3)
            for a in range(3):
                seen = {key: value[3 * w + a] for key, value in observation.items()}
                counts["enemies"] += check_unit(env, state, a, seen)
                counts["dead"] += not state.unit_alive[a]
            if ended[w]:  # this step only began a battle
                assert state.step == 0
                assert not np.any([reward[rows], terminated[rows], truncated[rows]])
                counts["begun"] += 1
                continue
            sides = state.unit_alive[:3].any(), state.unit_alive[3:].any()
            won = sides == (True, False)
            assert terminated[rows].tolist() == [not all(sides)] * 3
            # The original looks at its clock before it counts the step.
            assert truncated[rows].tolist() == [all(sides) and state.step == 16 + 1] * 3
            lost_health = (before[w].unit_health - state.unit_health)[3:].sum() / 45 / 3
            np.testing.assert_allclose(reward[rows], lost_health + won, atol=1e-5)
            assert infos["_success"][rows].tolist() == (terminated | truncated)[rows].tolist()
            if terminated[rows].any():
                assert infos["success"][rows].tolist() == [won] * 3
            counts["won or lost"] += terminated[rows][0]
            counts["time up"] += truncated[rows][0]
        ended = (terminated | truncated).reshape(3, 3)[:, 0]
        before = now
    assert all(counts.values()), counts
    for key, value in env.reset(seed=5)[0].items():
        np.testing.assert_array_equal(value, first[key])
    with pytest.raises(ValueError, match=r"action must be in \[0, 7\], got 8 in row 4"):
        env.step(np.array([4, 4, 4, 4, 8, 4, 4, 4, 4]))
    with pytest.raises(ValueError, match="one entry for each of 3 battles, got 2"):
        env.reset(seed=[1, 2])


@needs_smax
def test_the_second_side_counts_its_enemies_from_the_last() -> None:
    import jax

    env = make_smax(4, "5m_vs_6m", opponent="self")
    assert env.num_envs == 44
    rng = np.random.default_rng(1)
    units = 11
    state = original.State(
        unit_positions=rng.uniform(8, 20, (4, units, 2)).astype(np.float32),
        unit_alive=rng.random((4, units)) < 0.8,
        unit_teams=np.tile(np.arange(units) >= 5, (4, 1)).astype(np.float32),
        unit_health=rng.uniform(1, 45, (4, units)).astype(np.float32),
        unit_types=rng.integers(0, 6, (4, units)).astype(np.uint8),
        unit_weapon_cooldowns=rng.uniform(0, 1, (4, units)).astype(np.float32),
        prev_movement_actions=rng.uniform(-1, 1, (4, units, 2)).astype(np.float32),
        prev_attack_actions=rng.integers(0, 10, (4, units)).astype(np.int32),
        step=np.zeros(4, np.int32),
        done=np.zeros(4, bool),
    )
    state = jax.tree.map(jax.numpy.asarray, state)
    observation = env._rows(*env._see(jax.vmap(env.smax.get_obs)(state), state))
    assert observation in env.observation_space
    seen = 0
    for row in range(44):
        mine = {key: value[row] for key, value in observation.items()}
        seen += check_unit(env, battle_of(state, row // units), row % units, mine)
    assert seen > 50


@needs_smax
def test_every_scenario_has_an_id_and_wrong_options_are_named() -> None:
    assert set(SMAX_SCENARIOS) == set(original.MAP_NAME_TO_SCENARIO)
    with pytest.raises(ValueError, match=r"scenario must be one of \['10m_vs_11m'.*got '3mm'"):
        make_smax(1, "3mm")
    with pytest.raises(ValueError, match=r"one of \['heuristic', 'self'\], got 'learned'"):
        make_smax(1, opponent="learned")
    with pytest.raises(ValueError, match=r"columns, got 842; jaxmarl"):
        make_smax(1, "3m", observation_type="conic")
