"""smaclite: battles of StarCraft's units in NumPy, one policy for all allies.

    pip install --no-deps "smaclite @ git+https://github.com/uoe-agents/smaclite"
    pip install rtree scikit-learn pygame-ce
    entity-encoder train Bridge/smaclite-2s3z-v0 --total-steps 1000000

`--no-deps` because smaclite asks for exactly rtree 1.0.0, while newer ones work, and for pygame,
in whose place pygame-ce stands. It comes without a licence: it is imported, never shipped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.envs.bridges.packages import require
from entity_encoder.envs.bridges.parallel import ParallelVectorEnv
from entity_encoder.errors import nearest
from entity_encoder.schema import EntitySchema

__all__ = ["SmacliteParallel", "SmacliteView", "make_smaclite"]

PACKAGE = "smaclite"
KNOWN_VERSIONS = ("0.0.1",)
INSTALL = (
    'pip install --no-deps "smaclite @ git+https://github.com/uoe-agents/smaclite" && '
    "pip install rtree scikit-learn pygame-ce"
)
MOVES = ("can_north", "can_south", "can_east", "can_west")
POINT = ("x", "y")


class SmacliteView:
    """What an ally sees: itself, enemies and other allies within its sight.

    | group | columns |
    |---|---|
    | `self` (1) | `can_north, can_south, can_east, can_west, hp`, `shield`, kinds |
    | `enemy` | `attackable, distance, x, y, hp`, `shield`, kinds, numbers |
    | `ally` | `visible, distance, x, y, hp`, `shield`, kinds, numbers |

    Distances and relative positions count in sights, `hp` and `shield` in their own maximum. A
    side without shields has no column `shield`, a map with one kind of units none for kinds; so
    enemies and allies may differ in width. A unit is present when its `hp` is above 0: the first
    column of an enemy says whether it can be attacked, which one in sight but out of range cannot
    (in the row of a healer, whether the ally of that number can be healed). The dead see nothing,
    not even themselves.

    **Numbers.** Action `6 + i` aims at enemy i (a healer's at ally i), but a set has no order:
    one-hot columns `number_0, ...`, which the original tells by the place in its vector, say which
    one an entity is. Allies have them where there are healers.

    Args:
        allies: `n_agents`, those that act.
        enemies: `n_enemies`.
        kinds: `num_unit_types`: columns of the one-hot of kinds, 0 with a single kind.
        ally_shields: Whether allies have shields.
        enemy_shields: Whether enemies have shields.
        healers: Whether allies may be aimed at.
        numbers: Whether to add the columns of numbers.
    """

    def __init__(
        self,
        allies: int,
        enemies: int,
        kinds: int = 0,
        *,
        ally_shields: bool = False,
        enemy_shields: bool = False,
        healers: bool = False,
        numbers: bool = True,
    ) -> None:
        kind = tuple(f"kind_{k}" for k in range(kinds))
        about_enemies = ("hp", *(["shield"] if enemy_shields else []), *kind)
        about_allies = ("hp", *(["shield"] if ally_shields else []), *kind)
        enemy = ("attackable", "distance", *POINT, *about_enemies)
        ally = ("visible", "distance", *POINT, *about_allies)
        first_ally = 4 + enemies * len(enemy)
        own = first_ally + (allies - 1) * len(ally)
        alive = "hp > 0"
        self.layout = Layout(
            [
                Block("self", 0, features=MOVES),
                Block("self", own, features=about_allies, presence=alive),
                Block("enemy", 4, enemies, features=enemy, positions=POINT, presence=alive),
                Block(
                    "ally", first_ally, allies - 1, features=ally, positions=POINT, presence=alive
                ),
            ],
            package=PACKAGE,
            known=KNOWN_VERSIONS,
        )
        content = self.layout.schema().to_dict()
        self._numbers: dict[str, int] = {}
        if numbers:
            self._numbers = {"enemy": enemies, **({"ally": allies} if healers else {})}
        for group in content["groups"]:
            count = self._numbers.get(group["name"], 0)
            group["features"] = [*group["features"], *(f"number_{i}" for i in range(count))]
        self.entity_schema = EntitySchema.from_dict(content)
        self.observation_space = self.entity_schema.space(-1.0, 1.0)

    def observe(self, agent: str, observation: np.ndarray) -> dict[str, np.ndarray]:
        """Cut an ally's observation into entities; its name says which number is its own."""
        cut: dict[str, np.ndarray] = self.layout.split(observation)
        for name, count in self._numbers.items():
            if name not in cut:
                continue
            slots = np.arange(len(cut[name]))
            if name == "ally":  # the original leaves out the agent itself
                slots += slots >= int(agent.rpartition("_")[2])
            one_hot = np.eye(count, dtype=np.float32)[slots] * cut[f"{name}_mask"][:, None]
            cut[name] = np.concatenate([cut[name], one_hot], axis=1)
        return cut


class SmacliteParallel:
    """A battle in the form of PettingZoo's parallel environments.

    Allies are `ally_0, ally_1, ...`. All get the team's reward, and the dead stay until the battle
    ends, so that a sacrifice pays: they see nothing, and their only legal action is 0. The
    legal actions, `get_avail_actions()` of the original, are each agent's `info["action_mask"]`.

    Args:
        env: The original environment.
        max_episode_steps: Steps after which a battle is cut off, or None for never.
    """

    def __init__(self, env: Any, max_episode_steps: int | None = None) -> None:
        self.unwrapped = env
        self.possible_agents = [f"ally_{i}" for i in range(env.n_agents)]
        self.agents: list[str] = []
        self.render_mode: str | None = None
        self.max_episode_steps = max_episode_steps
        self._elapsed = 0

    def action_space(self, agent: str) -> spaces.Discrete:
        """Return the space that masks are made for, one for all; the original's own are not.

        Actions: 0 nothing (for the dead), 1 stop, 2 to 5 move, from 6 on aim at somebody.
        """
        return spaces.Discrete(int(self.unwrapped.n_actions))

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Begin a battle."""
        observations, info = self.unwrapped.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self._elapsed = 0
        return self._by_agent(observations), self._infos(info)

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, np.ndarray],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Let all allies act; what the dead choose is not looked at.

        Raises:
            ValueError: For an action that is not legal.
        """
        alive = self.unwrapped.agents  # by number
        # The original insists on int, and on 0 for the dead.
        chosen = [
            int(actions[agent]) if i in alive else 0 for i, agent in enumerate(self.possible_agents)
        ]
        observations, reward, terminated, _, info = self.unwrapped.step(chosen)
        self._elapsed += 1
        limit = self.max_episode_steps
        truncated = limit is not None and self._elapsed >= limit and not terminated
        before = self.possible_agents
        if terminated or truncated:
            self.agents = []
        return (
            self._by_agent(observations),
            dict.fromkeys(before, float(reward)),
            dict.fromkeys(before, bool(terminated)),
            dict.fromkeys(before, truncated),
            self._infos(info),
        )

    def render(self) -> Any:
        """Draw the battle."""
        return self.unwrapped.render()

    def close(self) -> None:
        """Close the window."""
        self.unwrapped.close()

    def _by_agent(self, observations: Any) -> dict[str, np.ndarray]:
        return dict(zip(self.possible_agents, observations, strict=True))

    def _infos(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        masks = self.unwrapped.get_avail_actions()
        return {
            agent: {**info, "action_mask": np.asarray(mask, np.int8)}
            for agent, mask in zip(self.possible_agents, masks, strict=True)
        }


def make_smaclite(
    num_envs: int = 1,
    map_name: str = "2s3z",
    *,
    max_episode_steps: int | None = 120,
    numbers: bool = True,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **kwargs: Any,
) -> ParallelVectorEnv:
    """Make a map of smaclite with one policy for all allies and the masks of legal actions.

    Args:
        num_envs: Copies; the vector environment has a row for each ally of each.
        map_name: One of the maps that come with smaclite; not looked at when `map_file` or
            `map_info` is passed.
        max_episode_steps: smaclite has no limit of its own, and a battle may last forever; 120
            is what its authors train with. None for no limit.
        numbers: See `SmacliteView`.
        render_mode: "human" or "rgb_array"; drawing needs pygame.
        autoreset_mode: See `ParallelVectorEnv`.
        **kwargs: Passed to `SMACliteEnv`, such as `map_file`.

    Raises:
        ImportError: When smaclite is missing, with the commands that bring it.
        ValueError: For a map that does not exist.
    """
    module = require("smaclite.env.smaclite", PACKAGE, INSTALL)
    if "map_info" not in kwargs and "map_file" not in kwargs:
        presets = require("smaclite.env.maps.map", PACKAGE, INSTALL).MapPreset
        maps = {preset.value.name: preset.value for preset in presets}
        if map_name not in maps:
            raise ValueError(
                f"map_name must be one of {sorted(maps)}, got {map_name!r}{nearest(map_name, maps)}"
            )
        kwargs["map_info"] = maps[map_name]
    make = partial(_make_battle, module.SMACliteEnv, max_episode_steps, render_mode, kwargs)
    first = make()
    battle = first.unwrapped
    view = SmacliteView(
        battle.n_agents,
        battle.n_enemies,
        battle.map_info.num_unit_types,
        ally_shields=bool(battle.map_info.ally_has_shields),
        enemy_shields=bool(battle.map_info.enemy_has_shields),
        healers=any(
            kind.stats.combat_type.name == "HEALING"
            for group in battle.map_info.groups
            if group.faction.name == "ALLY"
            for kind, _ in group.units
        ),
        numbers=numbers,
    )
    view.layout.check(battle.obs_size)
    return ParallelVectorEnv(
        [make] * num_envs, view, action_mask=True, autoreset_mode=autoreset_mode
    )


def _make_battle(
    kind: Any, max_episode_steps: int | None, render_mode: str | None, kwargs: dict[str, Any]
) -> SmacliteParallel:
    # Its renderer starts when something is drawn, so that a mode costs nothing.
    battle = SmacliteParallel(
        kind(render_mode=render_mode or "rgb_array", **kwargs), max_episode_steps
    )
    battle.render_mode = render_mode
    return battle
