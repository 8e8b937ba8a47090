"""Armies laid out by hand."""

from typing import Any

import torch
from torch import Tensor

from entity_encoder.envs.tasks.skirmish import Skirmish
from entity_encoder.envs.tasks.skirmish.battle import KINDS, Army
from tests.envs.tasks.play import place

RANGED, MELEE, HEALER = range(3)
STAY, UP, RIGHT, DOWN, LEFT, HEAL, ATTACK = range(7)

Unit = tuple[float, float, int, float]  # x, y, kind, health


def army(units: list[Unit], slots: int) -> dict[str, Any]:
    """Fill the first slots; the others are absent."""
    rows = [*units, *[(0.0, 0.0, 0, 0.0)] * (slots - len(units))]
    return {
        "place": [[[x, y] for x, y, _, _ in rows]],
        "kind": [[kind for _, _, kind, _ in rows]],
        "health": [[health for *_, health in rows]],
    }


def lay_out(allies: list[Unit], enemies: list[Unit], answer: list[int] | None = None) -> Skirmish:
    """Place two armies, with one absent slot; the enemies do `answer`, or stay."""
    slots = max(len(allies), len(enemies)) + 1
    actions = torch.tensor([(answer or []) + [0] * (slots - len(answer or []))])
    env = Skirmish(1, max_units=slots, opponent=lambda seen, rng: actions)
    parts: dict[str, Any] = {}
    for name, units in (("ally", allies), ("enemy", enemies)):
        parts |= {f"{name}_{part}": value for part, value in army(units, slots).items()}
    place(env, **parts, enemy_total=[sum(KINDS[kind].health for _, _, kind, _ in enemies)])
    return env


def read(seen: dict[str, Tensor], name: str) -> Army:
    """Read an army from an observation."""
    return Army(seen[name][:, :, :2], seen[name][:, :, 2], seen[name][:, :, 3:].argmax(2))
