"""A task in which every entity of a group acts, as agents of their own in PettingZoo's form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.actions import LegalSampler
from entity_encoder.envs.registration import find_task
from entity_encoder.envs.vector import EntityVectorEnv
from entity_encoder.schema import EgoFrame, EntitySchema
from entity_encoder.spaces import PerEntity

__all__ = ["EntityParallelEnv"]

SELF = "self"


class EntityParallelEnv:
    """Let every actor of a `PerEntity` task be an agent: a PettingZoo `ParallelEnv`.

    Agent `ally_3` is the entity in slot 3 of the group `ally`. It observes what the task shows,
    with itself moved to a group of its own, `self`, in whose frame positions are expressed where
    there are any. All agents receive the task's reward. An agent whose entity leaves is terminated;
    a time limit truncates those that are left. It needs no package: it has the methods and
    attributes that PettingZoo asks for, and passes its `parallel_api_test`.

    Args:
        task: A subclass of `EntityVectorEnv` with a `PerEntity` action space, or the name of one
            of ours: "Coverage", "Skirmish", "MultiSnake".
        render_mode: "rgb_array", "human" or None.
        **options: Options of the task.

    Attributes:
        task: The task underneath, a batch of one.
        possible_agents: One for each slot.
        agents: Those that act next.
        entity_schema: What an agent's observation contains.

    Raises:
        ValueError: When the task's actions are not `PerEntity`.

    Example:
        >>> env = EntityParallelEnv("Coverage", max_agents=3, min_agents=3)
        >>> observations, infos = env.reset(seed=0)
        >>> env.agents
        ['agent_0', 'agent_1', 'agent_2']
    """

    def __init__(
        self, task: str | type[EntityVectorEnv], *, render_mode: str | None = None, **options: Any
    ) -> None:
        make: Any = find_task(task) if isinstance(task, str) else task
        fixed = {"output": "numpy", "autoreset_mode": AutoresetMode.DISABLED}
        self.task: EntityVectorEnv = make(1, render_mode=render_mode, **fixed, **options)
        joint = self.task.single_action_space
        if not isinstance(joint, PerEntity):
            raise ValueError(
                f"task must let every entity of a group act (PerEntity), got {make.__name__} with "
                f"{joint}"
            )
        self.group = joint.group
        self.possible_agents = [f"{self.group}_{slot}" for slot in range(joint.slots)]
        self.agents: list[str] = []
        self.render_mode = render_mode
        self.metadata = {
            "name": make.__name__,
            "render_modes": ["human", "rgb_array"],
            "is_parallelizable": True,
        }
        self.entity_schema = _own_schema(self.task.entity_schema, self.group)
        self._observation_space = self._make_observation_space()
        self._samplers = {}
        for agent in self.possible_agents:
            space = PerEntity(
                SELF, 1, joint.n, target=joint.target, target_slots=joint.target_slots
            )
            self._samplers[agent] = LegalSampler(space)

    def _make_observation_space(self) -> spaces.Dict:
        given = self.task.single_observation_space
        assert isinstance(given, spaces.Dict)
        keys = dict(given.spaces)
        rows, mask = keys[self.group], keys.get("action_mask")
        assert isinstance(rows, spaces.Box)
        keys[SELF] = spaces.Box(rows.low[:1], rows.high[:1], dtype=np.float32)
        keys[f"{SELF}_mask"] = spaces.MultiBinary(1)
        if mask is not None:
            assert mask.shape is not None
            keys["action_mask"] = spaces.MultiBinary([1, mask.shape[1]])
        return spaces.Dict(keys)

    @property
    def unwrapped(self) -> EntityParallelEnv:
        """The environment itself."""
        return self

    @property
    def num_agents(self) -> int:
        """Number of agents that act next."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """Number of possible agents."""
        return len(self.possible_agents)

    def observation_space(self, agent: str) -> spaces.Dict:
        """Return what an agent observes; the same for all."""
        return self._observation_space

    def action_space(self, agent: str) -> PerEntity:
        """Return an agent's choice: `PerEntity("self", 1, ...)`, to others a MultiDiscrete of one.

        Its `sample` draws among what is legal for the agent now.
        """
        space = self._samplers[agent].space
        assert isinstance(space, PerEntity)
        return space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; there are no options."""
        observation, _ = self.task.reset(seed=seed)
        self.agents = self._present(observation)
        return self._split(observation, self.agents), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Let all agents act.

        Returns:
            Observation, reward, terminated, truncated and info of each agent that acted, or that
            appeared. Where the episode ends, infos hold the task's `score` and `success`.

        Raises:
            ValueError: When somebody's action is missing, or somebody acts who is not there.
            ResetNeeded: Before `reset`, or after the end of an episode.
        """
        if actions.keys() != set(self.agents):
            raise ValueError(f"actions must be those of {self.agents}, got {list(actions)}")
        joint = np.zeros((1, len(self.possible_agents)), np.int64)
        for agent, action in actions.items():
            joint[0, self.possible_agents.index(agent)] = np.asarray(action).item()
        observation, reward, terminated, truncated, infos = self.task.step(joint)
        here = self._present(observation)
        seen = [agent for agent in self.possible_agents if agent in {*self.agents, *here}]
        over, cut = bool(terminated[0]), bool(truncated[0])
        info = {key: value[0] for key, value in infos.items() if not key.startswith("_")}
        self.agents = [] if over or cut else here
        return (
            self._split(observation, seen),
            dict.fromkeys(seen, float(reward[0])),
            {agent: over or agent not in here for agent in seen},
            {agent: cut and agent in here for agent in seen},
            {agent: dict(info) for agent in seen},
        )

    def render(self) -> np.ndarray | None:
        """Draw the whole task."""
        frames = self.task.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Close the window, if there is one."""
        self.task.close()

    def _present(self, observation: dict[str, np.ndarray]) -> list[str]:
        there = observation[f"{self.group}_mask"][0]
        return [agent for agent, here in zip(self.possible_agents, there, strict=True) if here]

    def _split(
        self, observation: dict[str, np.ndarray], agents: list[str]
    ) -> dict[str, dict[str, np.ndarray]]:
        """Return what each agent observes: itself apart, and its own row of the action mask."""
        group, mask = self.group, f"{self.group}_mask"
        views = {}
        for agent in agents:
            slot = self.possible_agents.index(agent)
            view = {key: value[0].copy() for key, value in observation.items()}
            view |= {
                SELF: view[group][slot : slot + 1].copy(),
                f"{SELF}_mask": view[mask][slot : slot + 1].copy(),
            }
            view[group][slot], view[mask][slot] = 0, 0
            if "action_mask" in view:
                view["action_mask"] = view["action_mask"][slot : slot + 1]
                self._samplers[agent].legal = torch.as_tensor(view["action_mask"] > 0)
            views[agent] = view
        return views


def _own_schema(schema: EntitySchema, group: str) -> EntitySchema:
    """Return the schema with a group of one for the agent itself, whose frame is used."""
    actors = schema.group(group)
    own = dataclasses.replace(actors, name=SELF, slots=1, mask_key=f"{SELF}_mask")
    frame = EgoFrame(SELF) if schema.frame is None and own.positions else schema.frame
    return dataclasses.replace(schema, groups=(own, *schema.groups), frame=frame)
