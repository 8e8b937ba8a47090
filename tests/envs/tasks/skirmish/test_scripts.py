import torch

from entity_encoder.envs.tasks.skirmish import Skirmish
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


def orders(env: Skirmish, script: str) -> list[int]:
    action: list[int] = env.reference_policy(env.state, script)[0].tolist()
    return action


def test_scripts_attack_the_nearest_or_the_weakest_within_reach() -> None:
    enemies: list[Unit] = [(6.0, 4.0, MELEE, 9.0), (7.0, 4.0, RANGED, 2.0), (9.0, 4.0, RANGED, 1.0)]
    env = lay_out([(4.0, 4.0, RANGED, 5.0)], enemies)
    assert orders(env, "nearest") == [ATTACK, STAY, STAY, STAY]
    assert orders(env, "focus fire") == [ATTACK + 1, STAY, STAY, STAY]  # the third is 5 away


def test_among_equally_weak_enemies_the_nearest_is_attacked() -> None:
    enemies: list[Unit] = [(7.0, 4.0, RANGED, 2.0), (6.0, 4.0, RANGED, 2.0)]
    assert orders(lay_out([(4.0, 4.0, RANGED, 5.0)], enemies), "focus fire")[0] == ATTACK + 1


def test_out_of_reach_of_all_units_walk_to_the_nearest_along_the_longer_leg() -> None:
    allies: list[Unit] = [(2.0, y, MELEE, 10.0) for y in (2.0, 10.0, 14.0)]
    enemies: list[Unit] = [(12.0, 2.0, RANGED, 1.0), (3.0, 6.0, RANGED, 5.0)]
    for script in ("nearest", "focus fire"):
        assert orders(lay_out(allies, enemies), script) == [UP, DOWN, DOWN, STAY]
    assert (
        orders(lay_out([(2.0, 2.0, MELEE, 10.0)], [(9.0, 5.0, RANGED, 5.0)]), "nearest")[0] == RIGHT
    )
    assert (
        orders(lay_out([(9.0, 5.0, MELEE, 10.0)], [(2.0, 2.0, RANGED, 5.0)]), "nearest")[0] == LEFT
    )


def test_healers_mend_or_walk_to_the_most_hurt_else_to_fellows_that_fight() -> None:
    far: list[Unit] = [(16.0, 16.0, RANGED, 5.0)]
    healer: Unit = (4.0, 4.0, HEALER, 5.0)
    hurt: list[Unit] = [healer, (5.0, 4.0, RANGED, 4.0), (4.0, 14.0, MELEE, 1.0)]
    assert orders(lay_out(hurt, far), "nearest")[0] == HEAL
    apart: list[Unit] = [healer, (10.0, 4.0, RANGED, 4.0), (4.0, 14.0, MELEE, 1.0)]
    assert orders(lay_out(apart, far), "nearest")[0] == UP
    sound: list[Unit] = [healer, (4.0, 9.0, HEALER, 5.0), (10.0, 4.0, RANGED, 5.0)]
    assert orders(lay_out(sound, far), "focus fire")[0] == RIGHT
    assert orders(lay_out([healer], far), "nearest")[0] == STAY


def test_orders_are_always_legal() -> None:
    env = Skirmish(50, max_units=7, mirrored=False)
    observation, _ = env.reset(seed=0)
    for step in range(60):
        for script in ("nearest", "focus fire"):
            action = env.reference_policy(env.state, script)
            chosen = torch.tensor(observation["action_mask"]).gather(2, action[:, :, None])
            assert chosen.all(), (step, script)
        observation = env.step(action)[0]
