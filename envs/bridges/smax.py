"""SMAX of JaxMARL: batched battles in jax whose units are rows, one policy for all.

pip install jaxmarl
entity-encoder train Bridge/smax-2s3z-v0 --total-steps 1000000
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.envs.bridges.packages import layout_error, require
from entity_encoder.errors import nearest
from entity_encoder.schema import EntitySchema

__all__ = ["SmaxVectorEnv", "make_smax", "smax_layout"]

PACKAGE = "jaxmarl"
KNOWN_VERSIONS = ("0.2.0",)
INSTALL = "pip install jaxmarl"
POINT = ("x", "y")
MOVED = ("moved_x", "moved_y")
#: What the original calls the columns of a unit, before those of its kind, and how it begins here.
ORIGINAL = (
    *("health", "position_x", "position_y", "last_movement_x", "last_movement_y"),
    *("last_targeted", "weapon_cooldown"),
)
UNIT = ("health", *POINT, *MOVED, "target", "cooldown")
MOVES = 5  # four directions and stop; higher actions aim at enemies


def smax_layout(allies: int, enemies: int, kinds: int = 6) -> Layout:
    """Return where things stand in what a unit observes: its side, the other side, itself.

    Args:
        allies: Units of the observer's side, itself included.
        enemies: Units of the other side.
        kinds: Columns of the one-hot of kinds.
    """
    kind = tuple(f"kind_{k}" for k in range(kinds))
    unit = (*UNIT, *kind)
    own = ("health", *POINT, "cooldown", *kind)
    end = (allies - 1 + enemies) * len(unit)
    shared: dict[str, Any] = {
        "features": unit,
        "positions": POINT,
        "directions": MOVED,
        "presence": "health > 0",
    }
    return Layout(
        [
            Block("self", end, features=own, presence="health > 0"),
            Block("ally", 0, allies - 1, **shared),
            Block("enemy", (allies - 1) * len(unit), enemies, **shared),
        ],
        package=PACKAGE,
        known=KNOWN_VERSIONS,
    )


class SmaxVectorEnv(VectorEnv[dict[str, np.ndarray], np.ndarray, np.ndarray]):
    """Let one policy play the units of many battles, which step together as one jax program.

    Row `w * A + a` is unit `agents[a]` of battle w.

    | group | columns |
    |---|---|
    | `self` (1) | `health, x, y, cooldown`, kinds; `x, y` absolute in [0, 1] |
    | `ally`, `enemy` | `health, x, y, moved_x, moved_y, target, cooldown`, kinds |

    Relative positions count in the observer's sight; who is out of sight or dead is absent. All
    units of a side share its reward, and the dead stay until the battle ends, so that a sacrifice
    pays: they observe the empty set, and their only legal action is to stop.

    **Numbers.** Action `5 + k` aims at enemy k, but a set has no order: one-hot columns
    `number_0, ...` of `enemy` say which one an entity is. The second side counts its enemies from
    the last to the first, in its observation and in its actions alike, so that both agree.

    A battle that one side wins terminates; `max_steps` of the original truncates, which looks at
    its clock before it counts, so after `max_steps + 1` steps. The autoreset
    mode is NEXT_STEP. `infos["success"]` says, where a battle ends, whether the row's side won.

    Args:
        env: `HeuristicEnemySMAX`, whose units are the allies, or `SMAX`, where all act.
        num_worlds: Battles.
        numbers: Whether to add the columns of numbers.

    Attributes:
        agents: Names of a battle's units, in the order of the rows.
        state: The original's own state of all battles, after a reset.
        entity_schema: What a row's observation contains.

    Raises:
        ValueError: When the observation does not have the promised layout.
    """

    def __init__(self, env: Any, num_worlds: int = 1, *, numbers: bool = True) -> None:
        self._jax = require("jax", PACKAGE, INSTALL)
        self.smax = env
        self.num_worlds = num_worlds
        self.agents: tuple[str, ...] = tuple(env.agents)
        self.num_envs = num_worlds * len(self.agents)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        kinds = int(env.unit_type_bits)
        columns = tuple(env.unit_features)
        if columns[: len(ORIGINAL)] != ORIGINAL:
            raise layout_error(
                PACKAGE, KNOWN_VERSIONS, f"unit_features must begin with {ORIGINAL}, got {columns}"
            )
        sizes = [(env.num_allies, env.num_enemies), (env.num_enemies, env.num_allies)]
        sides = 2 if len(self.agents) > env.num_allies else 1
        self._sides = [(own, smax_layout(own, others, kinds)) for own, others in sizes[:sides]]
        for _, layout in self._sides:
            layout.check(int(env.obs_size))
        groups = [group for _, layout in self._sides for group in layout.schema().groups]
        by_name = {group.name: group for group in groups}
        slots = {name: max(g.slots for g in groups if g.name == name) for name in by_name}
        schema = EntitySchema(tuple(by_name.values()), (), None, ("action_mask",))
        content = schema.with_slots(slots).to_dict()
        self._numbers = slots["enemy"] if numbers else 0
        for group in content["groups"]:
            if group["name"] == "enemy":
                names = [f"number_{k}" for k in range(self._numbers)]
                group["features"] = [*group["features"], *names]
        self.entity_schema = EntitySchema.from_dict(content)
        self._actions = MOVES + slots["enemy"]
        self.single_action_space = spaces.Discrete(self._actions)
        self._space = self.entity_schema.space()
        self._space["action_mask"] = spaces.MultiBinary(self._actions)
        self.single_observation_space = self._space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.state: Any = None
        self._keys: Any = None
        self._ended = np.zeros(num_worlds, bool)
        self._begin = self._jax.jit(self._begin_all)
        self._advance = self._jax.jit(self._advance_all)
        self._choose = self._jax.jit(self._choose_all)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin a battle everywhere.

        Args:
            seed: An int s seeds battle w with s + w; a list gives each its own; None goes on with
                the streams there are, and begins with unforeseeable ones.
            options: Not used.
        """
        if seed is not None or self._keys is None:
            seeds: Any = seed
            if seed is None:
                seeds = np.random.default_rng().integers(2**31, size=self.num_worlds)
            elif isinstance(seed, (int, np.integer)):
                seeds = int(seed) + np.arange(self.num_worlds)
            if len(seeds) != self.num_worlds:
                raise ValueError(
                    f"seed must have one entry for each of {self.num_worlds} battles, "
                    f"got {len(seeds)}"
                )
            seeds = np.asarray(seeds, np.int64).astype(np.uint32)
            self._keys = self._jax.vmap(self._jax.random.PRNGKey)(seeds)
        self._keys, self.state, seen = self._begin(self._keys)
        self._ended = np.zeros(self.num_worlds, bool)
        return self._rows(*seen), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Let all units act; battles that have ended begin anew instead.

        Args:
            actions: (E,) integers. An action that is not legal does nothing in the original.

        Raises:
            ValueError: For an action outside the space, naming its row.
        """
        if self.state is None:
            raise error.ResetNeeded("SmaxVectorEnv must be reset before it is stepped")
        chosen = np.asarray(actions, np.int32)
        if chosen.shape != (self.num_envs,):
            raise ValueError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        wrong = (chosen < 0) | (chosen >= self._actions)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"action must be in [0, {self._actions - 1}], got {chosen[row]} in row {row}"
            )
        by_battle = chosen.reshape(self.num_worlds, -1)
        going = ~self._ended  # (W,)
        keys, self.state, seen, reward, ends = self._advance(
            self._keys, self.state, by_battle, going
        )
        if not going.all():
            keys, fresh, first = self._begin(keys)
            self.state, seen = self._choose(going, (self.state, seen), (fresh, first))
        self._keys = keys
        terminated, truncated, won = (np.asarray(end) for end in ends)
        self._ended = (terminated | truncated)[:, 0]
        infos = {
            "success": won.ravel().astype(np.float64),
            "_success": self._ended.repeat(len(self.agents)),
        }
        return (
            self._rows(*seen),
            np.asarray(reward, np.float64).ravel(),
            terminated.ravel().copy(),
            truncated.ravel().copy(),
            infos,
        )

    def _rows(self, observed: Any, legal: Any) -> dict[str, np.ndarray]:
        """Turn what was observed, (W, A, D), and masks, (W, A, n), into rows of entities."""
        observed = np.asarray(observed)
        rows: dict[str, np.ndarray] = {}
        for key, space in self._space.spaces.items():
            assert space.shape is not None
            rows[key] = np.zeros((*observed.shape[:2], *space.shape), space.dtype)
        rows["action_mask"][:] = legal
        first = 0
        for own, layout in self._sides:
            for key, value in layout.split(observed[:, first : first + own]).items():
                # (W, own, count, F) into as many slots and columns as the larger side has
                place = tuple(slice(0, size) for size in value.shape[2:])
                rows[key][:, first : first + own][(slice(None), slice(None), *place)] = value
            first += own
        if self._numbers:
            one_hot = np.eye(self._numbers, dtype=np.float32)
            rows["enemy"][..., -self._numbers :] = one_hot * rows["enemy_mask"][..., None]
        return {key: value.reshape(self.num_envs, *value.shape[2:]) for key, value in rows.items()}

    def _see(self, observations: dict[str, Any], state: Any) -> tuple[Any, Any]:
        """Stack what units observe, (W, A, D), and what is legal, (W, A, n)."""
        numpy = self._jax.numpy
        legal = self._jax.vmap(self.smax.get_avail_actions)(state)
        masks = [
            numpy.pad(legal[agent], ((0, 0), (0, self._actions - legal[agent].shape[-1])))
            for agent in self.agents
        ]
        seen = numpy.stack([observations[agent] for agent in self.agents], 1)
        return seen, numpy.stack(masks, 1)

    def _begin_all(self, keys: Any) -> tuple[Any, Any, Any]:
        pairs = self._jax.vmap(self._jax.random.split)(keys)  # (W, 2, key)
        observations, state = self._jax.vmap(self.smax.reset)(pairs[:, 1])
        # Types as they are after a step, so that its program is compiled once.
        state = self._jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), state)
        return pairs[:, 0], state, self._see(observations, state)

    def _advance_all(self, keys: Any, state: Any, actions: Any, going: Any) -> tuple[Any, ...]:
        numpy = self._jax.numpy
        pairs = self._jax.vmap(self._jax.random.split)(keys)
        by_agent = {agent: actions[:, a] for a, agent in enumerate(self.agents)}
        after = self._jax.vmap(self.smax.step_env)(pairs[:, 1], state, by_agent)
        observations, state, rewards, dones, _ = after
        alive = getattr(state, "state", state).unit_alive  # (W, units)
        first = alive[:, : self.smax.num_allies].any(1)
        second = alive[:, self.smax.num_allies :].any(1)
        over = dones["__all__"] & going
        decided = over & ~(first & second)
        is_second = numpy.arange(len(self.agents)) >= self.smax.num_allies
        won = numpy.where(is_second, (second & ~first)[:, None], (first & ~second)[:, None])
        terminated, truncated = (
            numpy.broadcast_to(end[:, None], won.shape) for end in (decided, over & ~decided)
        )
        reward = numpy.stack([rewards[agent] for agent in self.agents], 1) * going[:, None]
        return (
            pairs[:, 0],
            state,
            self._see(observations, state),
            reward,
            (
                terminated,
                truncated,
                won,
            ),
        )

    def _choose_all(self, going: Any, after: Any, fresh: Any) -> Any:
        """Take from `after` the battles that go on, and the others from `fresh`."""

        def choose(a: Any, b: Any) -> Any:
            return self._jax.numpy.where(going.reshape(-1, *[1] * (a.ndim - 1)), a, b)

        return self._jax.tree.map(choose, after, fresh)


def make_smax(
    num_envs: int = 1,
    scenario: str = "2s3z",
    *,
    opponent: str = "heuristic",
    numbers: bool = True,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **kwargs: Any,
) -> SmaxVectorEnv:
    """Make a scenario of SMAX whose units observe entities.

    Args:
        num_envs: Battles; the vector environment has a row for each acting unit of each.
        scenario: Name of a map, such as "3m" or "smacv2_5_units".
        opponent: "heuristic", the original's script, or "self": the policy plays both sides.
        numbers: See `SmaxVectorEnv`.
        autoreset_mode: NEXT_STEP.
        **kwargs: Passed to the original, such as `max_steps`, or `attack_mode` of the script.

    Raises:
        ImportError: When JaxMARL is missing, with the command that brings it.
        ValueError: For a scenario, an opponent or a mode that does not exist, and for an
            `observation_type` other than "unit_list".
    """
    if AutoresetMode(autoreset_mode) is not AutoresetMode.NEXT_STEP:
        raise ValueError(f"autoreset_mode must be NEXT_STEP, got {autoreset_mode}")
    classes = {"heuristic": "HeuristicEnemySMAX", "self": "SMAX"}
    if opponent not in classes:
        raise ValueError(f"opponent must be one of {sorted(classes)}, got {opponent!r}")
    known = require("jaxmarl.environments.smax.smax_env", PACKAGE, INSTALL).MAP_NAME_TO_SCENARIO
    if scenario not in known:
        raise ValueError(
            f"scenario must be one of {sorted(known)}, got {scenario!r}{nearest(scenario, known)}"
        )
    kind = getattr(require("jaxmarl.environments.smax", PACKAGE, INSTALL), classes[opponent])
    env = kind(scenario=known[scenario], **kwargs)
    return SmaxVectorEnv(env, num_envs, numbers=numbers)
