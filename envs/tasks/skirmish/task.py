"""Skirmish: command an army, unit by unit, against another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Global, Group, check_option
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.tasks.skirmish.battle import (
    ATTACK,
    FIELD,
    KINDS,
    Army,
    Battle,
    mirrored_action,
)
from entity_encoder.envs.tasks.skirmish.drawing import draw_battle
from entity_encoder.envs.tasks.skirmish.scripts import SCRIPTS
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.errors import choose
from entity_encoder.spaces import PerEntity

__all__ = ["Opponent", "Skirmish"]

#: A commander of the enemies: observations of their side, (E, ...), and random numbers to actions.
Opponent = Callable[[dict[str, Tensor], Rng], Tensor]

GRID = 64
MELEE_FROM, HEALERS_FROM = 0.5, 0.85  # a unit is ranged, melee or healer by a number from [0, 1)

# Mean returns of random actions and of focus fire by the number of units a side, measured over
# 1,000 episodes (4,000 with 5 units, 700, 400 and 140 with 16, 32 and 64).
COUNTS = (3, 5, 8, 16, 32, 64)
RANDOM = (0.066, 0.059, 0.052, 0.058, 0.089, 0.150)
REFERENCE = (0.691, 0.762, 0.803, 0.859, 0.727, 0.51)


class Skirmish(EntityVectorEnv):
    """Command an army, unit by unit, against another one.

    ## Description
    Two armies meet on a field of 16 x 16. In each step every unit moves, attacks an enemy within
    its reach or, a healer, mends a hurt fellow; all at once. Who has fallen leaves the set. It
    pays to fell enemies one after the other, to keep the hurt out of reach, and not to spend more
    on an enemy than it takes, so each unit has to know what the others will do.

    | kind | health | power | reach | speed | |
    |---|---|---|---|---|---|
    | ranged | 5 | 1 | 4.5 | 1 | takes `power` from an enemy's health |
    | melee | 10 | 1.5 | 1.5 | 1.25 | likewise |
    | healer | 5 | 1 | 4.5 | 1 | gives it to the most hurt fellow within reach |

    ## Action Space
    `PerEntity("ally", max_units, 6, target="enemy", target_slots=max_units)`: each ally stays (0),
    moves up, right, down or left (1 to 4; y points up), mends (5), or attacks the enemy in slot j
    (6 + j). `action_mask` says who can do what.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `ally` | (max_units, 6) | x, y; health; 1 in the column of its kind: ranged, melee, healer |
    | `enemy` | (max_units, 6) | likewise |
    | `<group>_mask` | (max_units,) | 1 where a unit is left |
    | `step` | (1,) | share of the time that is used up |
    | `action_mask` | (max_units, 6 + max_units) | 1 where this ally can do that |

    ## Rewards
    Half the share of the enemies' health that was removed in this step (less what they mended),
    and 1/2 for a victory: the last enemy falls while an ally stands. Victories are reported as
    `success`. Measured against "nearest", mirrored, 4,000 to 140 episodes:

    | units a side | 5 | 8 | 16 | 32 | 64 |
    |---|---|---|---|---|---|
    | "nearest" wins | .46 | .49 | .49 | .47 | .50 |
    | "focus fire" wins | .62 | .69 | .77 | .56 | .24 |
    | "focus fire" returns | .762 | .803 | .859 | .727 | .51 |

    Large armies waste shots when all fire at one enemy. Random actions never win and return .05 to
    .15. Score 0 is random, 1 "focus fire", which `reference_policy` follows.

    ## Starting State
    The number of units, the same for both armies, is drawn uniformly from `min_units` to
    `max_units`, kinds with probabilities .5 (ranged), .35 (melee) and .15 (healer), the first
    unit never a healer. Allies stand anywhere with x from 1 to 4 and y from 2 to 14, enemies with
    x from 12 to 15.

    ## Episode End
    Termination: an army has no units left. Truncation: after `max_episode_steps` steps.

    ## Arguments
    - `max_units` (5): capacity of either army, 1 to 128; may be larger at test time than in
      training.
    - `min_units` (three fifths of `max_units`): 1 to `max_units`.
    - `mirrored` (True): both armies have the same kinds of units; otherwise each draws its own.
    - `opponent` ("nearest"): who commands the enemies. "nearest" attacks the nearest within reach,
      "focus fire" the one with the least health, and both walk to the nearest when there is none;
      or a function of what the enemies observe (the field mirrored, so that they stand on the
      left and are the allies) and an `Rng`, which returns their actions, (E, max_units). Of a
      list of k, number i mod k commands in environment i.
    - `max_episode_steps` (60).
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_units: int = 5,
        min_units: int | None = None,
        mirrored: bool = True,
        opponent: str | Opponent | Sequence[str | Opponent] = "nearest",
        max_episode_steps: int = 60,
        **options: Any,
    ) -> None:
        self.max_units = check_option("max_units", max_units, 1, 128)
        fewest = -(-3 * max_units // 5) if min_units is None else min_units
        self.min_units = check_option("min_units", fewest, 1, max_units)
        self.mirrored = mirrored
        self.set_opponent(opponent)
        columns = {
            "x": (0.0, FIELD),
            "y": (0.0, FIELD),
            "health": (0.0, max(kind.health for kind in KINDS)),
        }
        columns |= {kind.name: (0.0, 1.0) for kind in KINDS}
        parts = ("place", "health", "kind", "action")
        super().__init__(
            num_envs,
            groups=tuple(
                Group(
                    name,
                    max_units,
                    columns,
                    positions=("x", "y"),
                    state=tuple(f"{name}_{part}" for part in parts),
                )
                for name in ("ally", "enemy")
            ),
            global_features=(Global("step"),),
            action_space=PerEntity(
                "ally", max_units, ATTACK, target="enemy", target_slots=max_units
            ),
            action_mask=True,
            max_episode_steps=max_episode_steps,
            **options,
        )
        self.time_limit = max_episode_steps
        counts = np.log2(np.arange(self.min_units, max_units + 1))
        known = np.log2(COUNTS)
        self.random_return = float(np.interp(counts, known, RANDOM).mean())
        self.reference_return = float(np.interp(counts, known, REFERENCE).mean())
        self._battle = Battle(self.device)
        self._corner = torch.tensor((1.0, 2.0)).to(self.device)
        self._room = torch.tensor((3.0, 12.0)).to(self.device) * GRID

    def set_opponent(self, opponent: str | Opponent | Sequence[str | Opponent]) -> None:
        """Let somebody else command the enemies from the next step on.

        Raises:
            ValueError: For an unknown name, or nobody.
        """
        if isinstance(opponent, str) or callable(opponent):
            opponent = (opponent,)
        self.opponents: tuple[str | Opponent, ...] = tuple(opponent)
        if not self.opponents:
            raise ValueError("opponent must name somebody, got an empty list")
        for name in self.opponents:
            if isinstance(name, str):
                choose("opponent", name, sorted(SCRIPTS))

    def initial(self, rng: Rng) -> State:
        """Draw how many units there are, of which kinds, and where they stand."""
        n = self.max_units
        count = rng.integers(n + 1, 1, low=self.min_units)
        present = torch.arange(n, device=rng.device) < count
        chance = rng.uniform(2, n)
        # The first is no healer: armies that cannot fight would not settle anything.
        first = torch.arange(n, device=rng.device) == 0
        chance = torch.where(first, chance * HEALERS_FROM, chance)
        kinds = (chance >= MELEE_FROM).long() + (chance >= HEALERS_FROM).long()
        # Places on a fine grid: mirroring them is exact, so neither side has an advantage.
        drawn = (rng.uniform(2, n, 2) * self._room).floor() / GRID + self._corner
        state: State = {}
        for side, name in enumerate(("ally", "enemy")):
            kind = kinds[:, 0 if self.mirrored else side]
            army = Army(drawn[:, side], self._battle.health[kind] * present, kind)
            state |= _stored(name, army.mirrored() if side else army, torch.zeros_like(kind))
        return {**state, "enemy_total": state["enemy_health"].sum(1)}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Let both armies act at once."""
        ally, enemy = _army(state, "ally"), _army(state, "enemy")
        answer = self._answer(ally, enemy, state["elapsed"], rng)
        allies, enemies = self._battle.step(ally, enemy, action, answer)
        following = {
            **state,
            **_stored("ally", allies, action),
            **_stored("enemy", enemies, answer),
        }
        removed = (enemy.health.sum(1) - enemies.health.sum(1)) / state["enemy_total"]
        won = self.success(following)
        over = ~(allies.alive.any(1) & enemies.alive.any(1))
        return following, 0.5 * removed + 0.5 * won, over, None

    def _answer(self, ally: Army, enemy: Army, elapsed: Tensor, rng: Rng) -> Tensor:
        """Return what the enemies do, (E, max_units)."""
        answer = torch.zeros_like(enemy.kind)
        for first, opponent in enumerate(self.opponents[: len(elapsed)]):
            rows = slice(first, None, len(self.opponents))
            us, them = enemy.rows(rows), ally.rows(rows)
            if isinstance(opponent, str):
                answer[rows] = SCRIPTS[opponent](self._battle, us, them)
            else:
                seen = self._seen(us.mirrored(), them.mirrored(), elapsed[rows])
                action = torch.where(us.alive, opponent(seen, rng.rows(rows)), 0)
                answer[rows] = mirrored_action(action)
        return answer

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show both armies and what each ally can do."""
        return self._seen(_army(state, "ally"), _army(state, "enemy"), state["elapsed"])

    def _seen(self, us: Army, them: Army, elapsed: Tensor) -> dict[str, Tensor]:
        """Return what the commander of `us` observes."""
        return {
            "ally": _columns(us),
            "ally_mask": us.alive,
            "enemy": _columns(them),
            "enemy_mask": them.alive,
            "step": (elapsed / self.time_limit)[:, None],
            "action_mask": self._battle.legal(us, them),
        }

    def success(self, state: State) -> Tensor:
        """Say where the last enemy has fallen and an ally stands, (E,)."""
        return _army(state, "ally").alive.any(1) & ~_army(state, "enemy").alive.any(1)

    def reference_policy(self, state: State, script: str = "focus fire") -> Tensor:
        """Let a script command the allies: "focus fire" or "nearest"."""
        return SCRIPTS[script](self._battle, _army(state, "ally"), _army(state, "enemy"))

    def render_frame(self, state: State) -> Image.Image:
        """Show allies blue and enemies red, a shape for each kind, shots and bars of health."""
        return draw_battle(state)


def _army(state: State, name: str) -> Army:
    return Army(*(state[f"{name}_{part}"] for part in ("place", "health", "kind")))


def _stored(name: str, army: Army, action: Tensor) -> State:
    """Return an army, and what it did last, as tensors of the state."""
    parts = {"place": army.place, "health": army.health, "kind": army.kind, "action": action}
    return {f"{name}_{part}": value for part, value in parts.items()}


def _columns(army: Army) -> Tensor:
    """Return place, health and kind of each unit, 0 for absent ones, (E, N, 6)."""
    names = torch.arange(len(KINDS), device=army.kind.device)
    kinds = army.kind[:, :, None] == names
    columns = torch.cat((army.place, army.health[:, :, None], kinds), 2)
    return columns * army.alive[:, :, None]
