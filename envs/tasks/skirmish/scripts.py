"""Scripted commanders of an army."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from entity_encoder.envs.tasks.skirmish.battle import (
    ATTACK,
    HEAL,
    HEALER,
    Army,
    Battle,
    distances,
    toward,
)

__all__ = ["SCRIPTS", "Script", "focus_fire", "nearest"]

Script = Callable[[Battle, Army, Army], Tensor]
FAR = 1e3  # more than any distance


def nearest(battle: Battle, us: Army, them: Army) -> Tensor:
    """Attack the nearest enemy within reach, else walk to the nearest."""
    return _command(battle, us, them, distances(us, them))


def focus_fire(battle: Battle, us: Army, them: Army) -> Tensor:
    """Attack the weakest enemy within reach, else walk to the nearest."""
    return _command(battle, us, them, them.health[:, None] + distances(us, them) / FAR)


def _command(battle: Battle, us: Army, them: Army, rank: Tensor) -> Tensor:
    """Attack the lowest rank (E, N, M) within reach; healers mend, or follow who needs them."""
    reachable = battle.targets(us, them)
    aim = rank.masked_fill(~reachable, torch.inf).argmin(2)
    far = distances(us, them).masked_fill(~them.alive[:, None], FAR)
    goal = far.argmin(2)
    action = torch.where(reachable.any(2), ATTACK + aim, toward(us, _pick(them.place, goal)))
    return torch.where(us.kind == HEALER, _heal(battle, us), action).masked_fill(~us.alive, 0)


def _heal(battle: Battle, us: Army) -> Tensor:
    """Mend, or walk to the most hurt fellow, else to the nearest that fights; alone, stay."""
    lost = (battle.health[us.kind] - us.health) * us.alive  # (E, N)
    needed = (lost > 0) | (us.alive & (us.kind != HEALER))
    other = ~torch.eye(us.kind.shape[1], dtype=torch.bool, device=us.kind.device)
    needed = needed[:, None] & other  # (E, N, N)
    wish = (lost[:, None] * FAR - distances(us, us)).masked_fill(~needed, -torch.inf)
    walk = toward(us, _pick(us.place, wish.argmax(2))).masked_fill(~needed.any(2), 0)
    return torch.where(battle.wounds(us).amax(2) > 0, HEAL, walk)


def _pick(place: Tensor, index: Tensor) -> Tensor:
    """Return the places (E, N, 2) of the units at `index`, (E, N)."""
    return place.gather(1, index[:, :, None].expand(-1, -1, 2))


SCRIPTS: dict[str, Script] = {"focus fire": focus_fire, "nearest": nearest}
