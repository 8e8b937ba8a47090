"""PettingZoo's parallel environments: every agent is a row of a vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from entity_encoder.schema import EntitySchema

__all__ = ["AgentView", "ParallelVectorEnv"]


class AgentView(Protocol):
    """How what an agent observes becomes entities, in one form for all agents.

    Attributes:
        observation_space: Space of every agent's entities.
        entity_schema: What they contain.
    """

    observation_space: spaces.Dict
    entity_schema: EntitySchema

    def observe(self, agent: str, observation: Any) -> dict[str, np.ndarray]:
        """Turn an agent's own observation into entities."""


class ParallelVectorEnv(VectorEnv[dict[str, np.ndarray], np.ndarray, np.ndarray]):
    """Let one policy play all agents of several copies of a parallel environment.

    Row `c * A + a` is agent `possible_agents[a]` of copy c, A agents in all. Each has its own
    reward and its own end, so that agents share parameters and nothing else.

    **Agents that leave or are not there yet.** The autoreset mode is NEXT_STEP. An agent's end is
    reported once with its true final observation. As long as it is absent after that, its row
    repeats `terminated` with reward 0, an observation of zeros (no entity present) and every
    action legal: by the rules of NEXT_STEP such a row takes no action and nothing is learned from
    it. When the agent appears, or a new episode of its copy begins, the row starts as after a
    reset. `infos["absent"]`, (E,) bool, names these rows; it is there after `reset` as well.

    **Actions.** All agents have one action space. Where they have different numbers of discrete
    actions, the space holds the most and `action_mask` closes the rest.

    Args:
        factories: Functions that make one copy each, such as `[simple_spread_v3.parallel_env] * 8`.
        view: Turns observations into entities; None when agents observe entities already.
        action_mask: Whether the agents' `info["action_mask"]` belongs to the observation.
        autoreset_mode: NEXT_STEP, see above.

    Attributes:
        agents: Names of all possible agents of a copy, in the order of the rows.
        copies: The parallel environments.
        view: See above.
        entity_schema: What a row's observation contains.

    Raises:
        ValueError: When agents observe or act in different spaces, or copies have other agents.
    """

    def __init__(
        self,
        factories: Sequence[Callable[[], Any]],
        view: AgentView | None = None,
        *,
        action_mask: bool = False,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        if AutoresetMode(autoreset_mode) is not AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"autoreset_mode must be NEXT_STEP, in which agents may be absent, "
                f"got {autoreset_mode}"
            )
        if not factories:
            raise ValueError("factories must hold at least one function, got none")
        self.copies: list[Any] = [make() for make in factories]
        if len({id(copy) for copy in self.copies}) != len(self.copies):
            raise ValueError("factories must make a new environment each, got the same one twice")
        self.agents: tuple[str, ...] = tuple(self.copies[0].possible_agents)
        for number, copy in enumerate(self.copies):
            if tuple(copy.possible_agents) != self.agents:
                raise ValueError(
                    f"copies must have the same agents {self.agents}, got "
                    f"{tuple(copy.possible_agents)} in copy {number}"
                )
        self.num_envs = len(self.copies) * len(self.agents)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": ["rgb_array"]}
        self.render_mode = getattr(self.copies[0], "render_mode", None)
        self.view = _Identity(self.copies[0]) if view is None else view
        first = self.copies[0]
        given = [first.action_space(agent) for agent in self.agents]
        self.single_action_space = _common_action_space(given, self.agents)
        self._own_masks = _own_masks(given) if len(set(map(repr, given))) > 1 else None
        self._info_mask = action_mask
        masks = ("action_mask",) if action_mask or self._own_masks is not None else ()
        schema = self.view.entity_schema
        self._space = spaces.Dict(self.view.observation_space.spaces)
        if masks:
            count = int(self.single_action_space.n)  # type: ignore[attr-defined]
            self._space["action_mask"] = spaces.MultiBinary(count)
            schema = EntitySchema(schema.groups, schema.globals, schema.frame, masks)
        self.entity_schema = schema
        self.single_observation_space = self._space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._live: list[set[str]] | None = None  # of each copy, the agents that act next

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode in every copy.

        Args:
            seed: An int s seeds copy c with s + c; a list gives each copy its own.
            options: Passed to every copy.
        """
        count = len(self.copies)
        seeds: list[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + c for c in range(count)]
        else:
            seeds = list(seed)
        if len(seeds) != count:
            raise ValueError(
                f"seed must have one entry for each of {count} copies, got {len(seeds)}"
            )
        rows = self._empty()
        self._live = []
        for c, copy in enumerate(self.copies):
            observations, infos = copy.reset(seed=seeds[c], options=options)
            self._live.append(set(copy.agents))
            self._write(rows, c, observations, infos)
        return rows, {"absent": self._absent()}

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Let all agents that are there act; copies without agents begin an episode instead.

        Args:
            actions: (E,) or (E, ...); those of absent agents are not looked at.
        """
        if self._live is None:
            raise error.ResetNeeded("ParallelVectorEnv must be reset before it is stepped")
        rows = self._empty()
        reward = np.zeros(self.num_envs, np.float64)
        truncated = np.zeros(self.num_envs, bool)
        terminated = np.zeros(self.num_envs, bool)
        for c, copy in enumerate(self.copies):
            acting = self._live[c]
            if not acting:
                observations, infos = copy.reset(seed=None)
                self._live[c] = set(copy.agents)
                self._write(rows, c, observations, infos)
                terminated[self._rows(c)] = [a not in self._live[c] for a in self.agents]
                continue
            chosen = {a: self._action(actions, c, a) for a in self.agents if a in acting}
            observations, rewards, ends, cuts, infos = copy.step(chosen)
            self._live[c] = set(copy.agents)
            for a, agent in enumerate(self.agents):
                row = c * len(self.agents) + a
                if agent in acting:
                    reward[row] = rewards.get(agent, 0.0)
                    truncated[row] = cuts.get(agent, False)
                    terminated[row] = ends.get(agent, False)
                    if agent not in self._live[c] and not truncated[row]:
                        terminated[row] = True
                else:
                    terminated[row] = agent not in self._live[c]
            self._write(rows, c, observations, infos)
        return rows, reward, terminated, truncated & ~terminated, {"absent": self._absent()}

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return a frame of every copy, or None without a render mode."""
        return None if self.render_mode is None else tuple(copy.render() for copy in self.copies)

    def close_extras(self, **_: Any) -> None:
        """Close the copies."""
        for copy in self.copies:
            copy.close()

    def _rows(self, c: int) -> slice:
        return slice(c * len(self.agents), (c + 1) * len(self.agents))

    def _absent(self) -> np.ndarray:
        assert self._live is not None
        return np.array([agent not in live for live in self._live for agent in self.agents])

    def _action(self, actions: np.ndarray, c: int, agent: str) -> Any:
        action = actions[c * len(self.agents) + self.agents.index(agent)]
        space = self.single_action_space
        if isinstance(space, spaces.Discrete):
            return int(action)
        return np.asarray(action, space.dtype)

    def _empty(self) -> dict[str, np.ndarray]:
        """Return fresh rows of absent agents: as near to zeros as the space allows."""
        rows = {}
        for key, space in self._space.spaces.items():
            assert space.shape is not None
            rows[key] = np.zeros((self.num_envs, *space.shape), space.dtype)
            if key == "action_mask":
                rows[key][:] = 1
            elif isinstance(space, spaces.Box):
                np.clip(rows[key], space.low, space.high, out=rows[key])
        return rows

    def _write(
        self,
        rows: dict[str, np.ndarray],
        c: int,
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
    ) -> None:
        """Fill in what the agents of a copy observe, final observations included."""
        for a, agent in enumerate(self.agents):
            if agent not in observations:
                continue
            row = c * len(self.agents) + a
            for key, value in self.view.observe(agent, observations[agent]).items():
                rows[key][row] = value
            if self._own_masks is not None:
                rows["action_mask"][row] = self._own_masks[a]
            if self._info_mask and "action_mask" in infos.get(agent, {}):
                rows["action_mask"][row] = infos[agent]["action_mask"]


class _Identity:
    """The view of agents that observe entities already."""

    def __init__(self, copy: Any) -> None:
        given = [copy.observation_space(agent) for agent in copy.possible_agents]
        for agent, space in zip(copy.possible_agents, given, strict=True):
            if space != given[0]:
                raise ValueError(
                    f"agents must observe in one space, got {given[0]} and, for {agent!r}, "
                    f"{space}; pass a view that brings them into one form"
                )
        declared = getattr(copy, "entity_schema", None)
        self.observation_space = given[0]
        self.entity_schema = declared or EntitySchema.from_space(given[0])

    def observe(self, agent: str, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return observation


def _common_action_space(
    given: Sequence[spaces.Space[Any]], agents: Sequence[str]
) -> spaces.Space[Any]:
    if all(space == given[0] for space in given):
        return given[0]
    if all(isinstance(space, spaces.Discrete) and space.start == 0 for space in given):
        return spaces.Discrete(max(int(space.n) for space in given))  # type: ignore[attr-defined]
    shown = {agent: str(space) for agent, space in zip(agents, given, strict=True)}
    raise ValueError(f"agents must have one action space, or Discrete ones from 0, got {shown}")


def _own_masks(given: Sequence[Any]) -> list[np.ndarray]:
    """Return which of the common actions each agent has, (A, n)."""
    most = max(int(space.n) for space in given)
    return [(np.arange(most) < int(space.n)).astype(np.int8) for space in given]
