import operator
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from entity_encoder.envs.rng import Rng
from entity_encoder.envs.tasks.skirmish import Skirmish
from entity_encoder.envs.tasks.skirmish.battle import Battle
from entity_encoder.envs.tasks.skirmish.scripts import nearest
from tests.envs.tasks.play import Policy, agrees, first_returns, random
from tests.envs.tasks.skirmish.field import HEALER, STAY, Unit, lay_out, read


def by_observation(seen: dict[str, Tensor], rng: Rng) -> Tensor:
    """Command as the script "nearest" does, from nothing but the observation."""
    return nearest(Battle(torch.device("cpu")), read(seen, "ally"), read(seen, "enemy"))


def lottery(seen: dict[str, Tensor], rng: Rng) -> Tensor:
    """Draw among what the mask allows."""
    mask = seen["action_mask"]
    return torch.where(mask, rng.uniform(*mask.shape[1:]), -1.0).argmax(2)


def test_a_function_commands_the_enemies_from_what_they_see_mirrored() -> None:
    script, function = (
        Skirmish(30, opponent=opponent, autoreset_mode="SAME_STEP")
        for opponent in ("nearest", by_observation)
    )
    for env in (script, function):
        env.reset(seed=0)
    for _ in range(40):
        action = script.reference_policy(script.state)
        results = [env.step(action) for env in (script, function)]
        for key, value in results[0][0].items():
            assert (results[1][0][key] == value).all(), key
    assert script.state["enemy_action"].any()


def test_an_opponent_s_draws_depend_on_seed_and_step_alone() -> None:
    many, few = Skirmish(5, opponent=lottery), Skirmish(2, opponent=lottery)
    many.reset(seed=10)
    few.reset(seed=12)
    for _ in range(30):
        action = many.reference_policy(many.state)
        expected = many.step(action)[0]
        observation = few.step(action[2:4])[0]
        for key, value in observation.items():
            assert (value == expected[key][2:4]).all(), key


def test_opponents_can_be_exchanged_and_travel_with_the_environment() -> None:
    allies: list[Unit] = [(4.0, 4.0, 0, 5.0)]
    env = lay_out(allies, [(6.0, 4.0, 0, 5.0)])
    env.step([[STAY, STAY]])
    assert env.state["ally_health"][0, 0] == 5.0
    env.set_opponent("nearest")
    env.step([[STAY, STAY]])
    assert env.state["ally_health"][0, 0] == 4.0
    env.set_opponent(lottery)
    assert pickle.loads(pickle.dumps(env)).opponents == (lottery,)


def test_several_opponents_share_the_environments() -> None:
    alone = {name: Skirmish(7, opponent=name) for name in ("nearest", "focus fire")}
    mixed = Skirmish(7, opponent=["nearest", "focus fire", by_observation, lottery])
    for env in (mixed, *alone.values()):
        env.reset(seed=0)
    differ = False
    for _ in range(16):
        action = mixed.reference_policy(mixed.state)
        states = {}
        for name, env in alone.items():
            env.set_state(mixed.get_state())
            env.step(action)
            states[name] = env.state["enemy_action"]
        mixed.step(action)
        answers = mixed.state["enemy_action"]
        assert torch.equal(answers[0::4], states["nearest"][0::4])
        assert torch.equal(answers[1::4], states["focus fire"][1::4])
        assert torch.equal(answers[2::4], states["nearest"][2::4])
        differ |= not torch.equal(answers[3], states["nearest"][3])
    assert differ
    few = Skirmish(2, opponent=["nearest", "focus fire", lottery])  # more than environments
    few.reset(seed=0)
    few.step(few.reference_policy(few.state))


def test_an_unknown_opponent_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"opponent must be one of .*; did you mean 'focus fire'"):
        Skirmish(1, opponent="focusfire")
    with pytest.raises(ValueError, match="opponent must name somebody, got an empty list"):
        Skirmish(1, opponent=[])


@pytest.mark.parametrize("mirrored", [True, False])
def test_armies_begin_as_stated(mirrored: bool) -> None:
    env = Skirmish(3000, max_units=6, min_units=2, mirrored=mirrored)
    observation, _ = env.reset(seed=0)
    ally, enemy = (
        read({k: torch.tensor(v) for k, v in observation.items()}, name)
        for name in ("ally", "enemy")
    )
    count = ally.alive.sum(1)
    assert torch.equal(count, enemy.alive.sum(1))
    counts = torch.bincount(count, minlength=7)
    assert counts[:2].sum() == 0
    assert ((counts[2:] - 600).abs() <= 4 * (3000 * 0.2 * 0.8) ** 0.5).all()
    kinds = []
    for side, army in enumerate((ally, enemy)):
        x, y = army.place[army.alive].unbind(1)
        assert x.min() == pytest.approx(1.0 + 11 * side, abs=0.02)
        assert x.max() == pytest.approx(4.0 + 11 * side, abs=0.02)
        assert 2.0 == y.min() < y.max() < 14.0
        kinds.append(torch.stack([((army.kind == k) & army.alive).sum(1) for k in range(3)], 1))
        assert (kinds[-1][:, :HEALER].sum(1) > 0).all()
        # Of the others 15 % are healers, of those that fight 50 in 85 are ranged.
        total = kinds[-1].sum(0).double()
        assert total[2] / (total.sum() - 3000) == pytest.approx(0.15, abs=0.015)
        assert total[0] / total[:2].sum() == pytest.approx(0.5 / 0.85, abs=0.02)
    assert torch.equal(*kinds) == mirrored


def test_the_return_is_half_the_harm_and_half_the_victory() -> None:
    env = Skirmish(40, autoreset_mode="DISABLED", opponent="focus fire")
    env.reset(seed=3)
    gained = torch.zeros(40)
    running = torch.ones(40, dtype=torch.bool)
    while running.any():
        _, reward, terminated, truncated, infos = env.step(env.reference_policy(env.state))
        gained += torch.tensor(reward).float()
        ended = torch.tensor(terminated | truncated)
        if ended.any():
            left = env.state["enemy_health"].sum(1) / env.state["enemy_total"]
            ally = env.state["ally_health"].sum(1)
            won = (left == 0) & (ally > 0)
            assert infos["success"][ended].tolist() == won[ended].float().tolist()
            expected = 0.5 * (1 - left) + 0.5 * won
            torch.testing.assert_close(gained[ended], expected[ended])
            env.reset(options={"reset_mask": ended})
            gained[ended] = 0.0
            running &= ~ended


def test_success_reaches_final_infos_and_tensors() -> None:
    arrays = Skirmish(20, autoreset_mode="SAME_STEP")
    tensors = Skirmish(20, autoreset_mode="SAME_STEP", output="torch")
    for env in (arrays, tensors):
        env.reset(seed=1)
    told = 0
    for _ in range(45):
        action = arrays.reference_policy(arrays.state)
        infos, expected = (env.step(action)[4] for env in (tensors, arrays))
        ended = infos["_success"]
        told += int(ended.sum())
        if ended.any():
            assert infos["success"][ended].float().tolist() == expected["success"][ended].tolist()
            assert torch.equal(infos["final_info"]["success"], infos["success"])
            assert (expected["final_info"]["_success"] == expected["_success"]).all()
        else:
            assert expected == {}
    assert told >= 20


def script(name: str, env: Any) -> Tensor:
    action: Tensor = env.reference_policy(env.state, name)
    return action


def victories(env: Skirmish, policy: Policy) -> Tensor:
    """Return 1 where the first episode is won, found by its return: only then above .5."""
    return (first_returns(env, policy) > 0.5 + 1e-6).double()


@pytest.mark.parametrize(
    ("units", "episodes", "marks"), [(5, 400, (0.46, 0.62)), (8, 200, (0.49, 0.69))]
)
def test_scripts_win_as_often_as_stated(
    units: int, episodes: int, marks: tuple[float, float]
) -> None:
    env = Skirmish(episodes, max_units=units, min_units=units)
    for name, mark in zip(("nearest", "focus fire"), marks, strict=True):
        assert agrees(victories(env, partial(script, name)), mark, slack=0.01)


def test_the_score_is_0_for_random_and_1_for_focus_fire() -> None:
    env = Skirmish(500)
    assert agrees(first_returns(env, random), env.random_return, slack=0.005)
    assert agrees(first_returns(env, partial(script, "focus fire")), env.reference_return)


def test_frames_tell_units_by_place() -> None:
    env = lay_out([(4.0, 4.0, 0, 5.0)], [(12.0, 4.0, 1, 5.0)])
    places = env.picture().info["places"]
    assert set(places) == {("ally", 0), ("enemy", 0)}
    left, right = places["ally", 0], places["enemy", 0]
    assert operator.lt(left[0], right[0])
    assert left[1] == right[1]
