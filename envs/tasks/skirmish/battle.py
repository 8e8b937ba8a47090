"""The rules of a battle between two armies, for whole batches at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from entity_encoder.envs.tasks.paths import STEPS

__all__ = [
    "ATTACK",
    "FIELD",
    "HEAL",
    "KINDS",
    "Army",
    "Battle",
    "Kind",
    "distances",
    "mirrored_action",
    "toward",
]

FIELD = 16.0  # width and height
HEAL, ATTACK = 5, 6  # action 0 stays, 1 to 4 move (up, right, down, left)


@dataclass(frozen=True)
class Kind:
    """What a unit can do: health and power in points, reach in units, speed in units a step."""

    name: str
    health: float
    power: float
    reach: float
    speed: float


KINDS = (
    Kind("ranged", health=5.0, power=1.0, reach=4.5, speed=1.0),
    Kind("melee", health=10.0, power=1.5, reach=1.5, speed=1.25),
    Kind("healer", health=5.0, power=1.0, reach=4.5, speed=1.0),
)
HEALER = 2


@dataclass(frozen=True)
class Army:
    """The units of one side; those without health are absent.

    Args:
        place: x and y, (E, N, 2).
        health: Points, 0 for a unit that is absent or fell, (E, N).
        kind: Index into `KINDS`, int64, (E, N).
    """

    place: Tensor
    health: Tensor
    kind: Tensor

    @property
    def alive(self) -> Tensor:
        """Which units are there, (E, N)."""
        return self.health > 0

    def rows(self, where: slice) -> Army:
        """Return the armies of some environments."""
        return Army(self.place[where], self.health[where], self.kind[where])

    def mirrored(self) -> Army:
        """Return the army as seen from the other side: left and right exchanged."""
        x, y = self.place.unbind(2)
        return Army(torch.stack((FIELD - x, y), 2), self.health, self.kind)


class Battle:
    """What units can do, who is near whom, and what a step's actions lead to.

    Args:
        device: Where the armies are.
    """

    def __init__(self, device: torch.device) -> None:
        columns = ("health", "power", "reach", "speed")
        stats = torch.tensor([[getattr(kind, name) for name in columns] for kind in KINDS])
        self.health, self._power, self._reach, self._speed = stats.to(device).unbind(1)
        steps = torch.zeros(ATTACK, 2)
        steps[1:HEAL] = torch.tensor(STEPS)
        self._steps = steps.to(device)

    def legal(self, us: Army, them: Army) -> Tensor:
        """Say who can do what, (E, N, 6 + M).

        All can stay and move, healers mend a hurt fellow within reach, the others attack an enemy
        within reach. Absent units may only stay.
        """
        legal = torch.ones(*us.kind.shape, ATTACK, dtype=torch.bool, device=us.kind.device)
        legal[..., HEAL] = self.wounds(us).amax(2) > 0
        return torch.cat((legal, self.targets(us, them)), 2) & (
            us.alive[:, :, None] | (_slots(ATTACK + them.kind.shape[1], legal.device) == 0)
        )

    def targets(self, us: Army, them: Army) -> Tensor:
        """Say which of us can attack which of them now, (E, N, M)."""
        near = distances(us, them) <= self._reach[us.kind][:, :, None]
        fights = us.alive & (us.kind != HEALER)
        return near & fights[:, :, None] & them.alive[:, None]

    def wounds(self, us: Army) -> Tensor:
        """Say how many points each of us could mend at each fellow now, (E, N, N)."""
        near = distances(us, us) <= self._reach[us.kind][:, :, None]
        heals = us.alive & (us.kind == HEALER)
        other = ~torch.eye(us.kind.shape[1], dtype=torch.bool, device=us.kind.device)
        lost = (self.health[us.kind] - us.health) * us.alive
        return lost[:, None] * (near & heals[:, :, None] & other)

    def step(
        self, us: Army, them: Army, our_action: Tensor, their_action: Tensor
    ) -> tuple[Army, Army]:
        """Let all units act at once and return both armies; what all do counts at once, too."""
        harm, mend = self._effects(us, them, our_action)
        their_harm, their_mend = self._effects(them, us, their_action)
        return (
            self._after(us, our_action, their_harm, mend),
            self._after(them, their_action, harm, their_mend),
        )

    def _effects(self, us: Army, them: Army, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the harm done to each of them, (E, M), and what is mended at each of us."""
        power = self._power[us.kind] * us.alive
        aim = (action - ATTACK).clamp(min=0)
        harm = torch.zeros_like(them.health).scatter_add(1, aim, power * (action >= ATTACK))
        patient = self.wounds(us).argmax(2)
        mend = torch.zeros_like(us.health).scatter_add(1, patient, power * (action == HEAL))
        return harm, mend

    def _after(self, us: Army, action: Tensor, harm: Tensor, mend: Tensor) -> Army:
        move = self._steps[action.clamp(max=HEAL)] * self._speed[us.kind][:, :, None]
        place = (us.place + move * us.alive[:, :, None]).clamp(0.0, FIELD)
        health = torch.minimum(us.health + mend - harm, self.health[us.kind]).clamp(min=0.0)
        return Army(place, health * us.alive, us.kind)


def distances(us: Army, them: Army) -> Tensor:
    """Return how far each of us is from each of them, (E, N, M)."""
    return (us.place[:, :, None] - them.place[:, None]).square().sum(3).sqrt()


def toward(us: Army, goal: Tensor) -> Tensor:
    """Return the moves along the longer leg of the way to a place each, (E, N, 2) to (E, N)."""
    x, y = (goal - us.place).unbind(2)
    sideways = torch.where(x > 0, 2, 4)
    return torch.where(x.abs() > y.abs(), sideways, torch.where(y > 0, 1, 3))


def mirrored_action(action: Tensor) -> Tensor:
    """Exchange the moves to the right and to the left."""
    return torch.where((action == 2) | (action == 4), 6 - action, action)


def _slots(n: int, device: torch.device) -> Tensor:
    return torch.arange(n, device=device)
