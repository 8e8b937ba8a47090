"""VMAS: batched worlds in torch, whose agents are rows; nothing leaves the device.

pip install vmas
agent = PPO(make_vmas(256, "simple_spread", max_steps=100), PPOConfig(total_steps=1_000_000))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.envs.bridges.packages import require
from entity_encoder.errors import nearest

__all__ = ["VMAS_LAYOUTS", "VmasVectorEnv", "dispersion_layout", "make_vmas", "spread_layout"]

PACKAGE = "vmas"
KNOWN_VERSIONS = ("1.5.2",)
SELF = ("x", "y", "vx", "vy")  # position first, the opposite of MPE2
POINT = ("x", "y")


def spread_layout(n_agents: int = 3, obs_agents: bool = True) -> Layout:
    """Return where things stand in `simple_spread`: self, landmarks and other agents, relative.

    Args:
        n_agents: Agents, and landmarks.
        obs_agents: Whether agents see each other.
    """
    others = n_agents - 1 if obs_agents else 0
    return Layout(
        [
            Block("self", 0, features=SELF, directions=SELF[2:]),
            Block("landmark", 4, n_agents, features=POINT, positions=POINT),
            Block("agent", 4 + 2 * n_agents, others, features=POINT, positions=POINT),
        ],
        package=PACKAGE,
        known=KNOWN_VERSIONS,
    )


def dispersion_layout(n_agents: int = 4, n_food: int | None = None) -> Layout:
    """Return where things stand in `dispersion`: self, and food with a flag for what is eaten.

    Args:
        n_agents: Agents.
        n_food: Pieces of food; default as many as agents.
    """
    food = n_agents if n_food is None else n_food
    return Layout(
        [
            Block("self", 0, features=SELF, directions=SELF[2:]),
            Block("food", 4, food, features=(*POINT, "eaten"), positions=POINT),
        ],
        package=PACKAGE,
        known=KNOWN_VERSIONS,
    )


#: Layouts by scenario; each takes the scenario's own options.
VMAS_LAYOUTS = {"dispersion": dispersion_layout, "simple_spread": spread_layout}


class VmasVectorEnv(VectorEnv[dict[str, Tensor], Tensor, Tensor]):
    """Let one policy play all agents of a VMAS environment.

    Row `w * A + a` is agent a of world w. Observations, rewards and flags are tensors on the
    environment's device (`output="torch"`), and actions are taken as tensors, (E,) or (E, k).
    The agents of a world begin and end together. The autoreset mode is SAME_STEP:
    `infos["final_obs"]` is a dict of batched tensors whose rows mean something where
    `infos["_final_obs"]` is True. `done` of the scenario terminates, `max_steps` truncates.

    **Batched resets.** VMAS resets all worlds at once, or one by one. Here, when some worlds end,
    all are reset at once and those that go on get their state back: every tensor of worlds that
    the scenario, the world, and what they hold carry.

    Args:
        env: A VMAS environment, not wrapped.
        layout: Where entities stand in each agent's observation.

    Attributes:
        entity_schema: What a row's observation contains.

    Raises:
        ValueError: When agents observe or act differently, or the layout does not fit.
    """

    output = "torch"

    def __init__(self, env: Any, layout: Layout) -> None:
        require("vmas", PACKAGE, "pip install vmas")
        env.terminated_truncated = True
        env.dict_spaces = False
        self.vmas = env
        self.device = torch.device(env.device)
        self.layout = layout
        self.num_worlds = int(env.num_envs)
        self.num_agents = len(env.agents)
        self.num_envs = self.num_worlds * self.num_agents
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        for agent, observation in zip(env.agents, _observe(env), strict=True):
            if not isinstance(observation, Tensor):
                raise ValueError(f"{agent.name} must observe a tensor, got {type(observation)}")
            layout.check(observation.shape[-1])
        self.entity_schema = layout.schema()
        self.single_observation_space = self.entity_schema.space()
        given = [_convert(env.get_agent_action_space(agent)) for agent in env.agents]
        if any(space != given[0] for space in given):
            raise ValueError(f"agents must have one action space, got {given}")
        self.single_action_space = given[0]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._is_reset = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Begin an episode in every world; VMAS has one stream of random numbers for all.

        Raises:
            ValueError: For a list of seeds.
        """
        if not isinstance(seed, (int, np.integer, type(None))):
            raise ValueError(f"seed must be one number for all worlds of VMAS, got {seed}")
        observations = self.vmas.reset(seed=None if seed is None else int(seed))
        self._is_reset = True
        return self._rows(observations), {}

    def step(
        self, actions: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor, dict[str, Any]]:
        """Let all agents act.

        Args:
            actions: (E,) or (E, k).

        Returns:
            Observation, reward (E,) float32, terminated (E,), truncated (E,) and infos.
        """
        if not self._is_reset:
            raise error.ResetNeeded("VmasVectorEnv must be reset before it is stepped")
        actions = torch.as_tensor(actions, device=self.device)
        # (W, A, k): an agent's column holds its action in every world
        by_agent = actions.reshape(self.num_worlds, self.num_agents, -1).float()
        columns = [by_agent[:, a].clone() for a in range(self.num_agents)]
        observations, rewards, terminated, truncated, _ = self.vmas.step(columns)
        observation = self._rows(observations)
        truncated = truncated & ~terminated
        ended = terminated | truncated  # (W,)
        infos: dict[str, Any] = {
            "final_obs": observation,
            "_final_obs": ended.repeat_interleave(self.num_agents),
        }
        if bool(ended.any()):
            observation = self._rows(self._restart(ended))
        return (
            observation,
            torch.stack(list(rewards), dim=1).flatten().float(),
            terminated.repeat_interleave(self.num_agents),
            truncated.repeat_interleave(self.num_agents),
            infos,
        )

    def _rows(self, observations: list[Tensor]) -> dict[str, Tensor]:
        """Turn A tensors (W, D) into entities of W * A rows."""
        flat = torch.stack(list(observations), dim=1).flatten(0, 1)
        return self.layout.split(flat)

    def _restart(self, ended: Tensor) -> list[Tensor]:
        """Reset all worlds, then give those that go on their state back."""
        if bool(ended.all()):
            observations: list[Tensor] = self.vmas.reset()
            return observations
        holders = [self.vmas.scenario, self.vmas.world]
        before = {
            place: tensor.clone() for place, _, _, tensor in _tensors(holders, self.num_worlds)
        }
        steps = self.vmas.steps.clone()
        self.vmas.reset(return_observations=False)
        for place, holder, key, tensor in list(_tensors(holders, self.num_worlds)):
            if place in before:
                begins = ended.reshape(-1, *[1] * (tensor.dim() - 1))
                _put(holder, key, torch.where(begins, tensor, before[place]))
        self.vmas.steps = torch.where(ended, self.vmas.steps, steps)
        return _observe(self.vmas)


def make_vmas(
    num_envs: int, scenario: str = "simple_spread", layout: Layout | None = None, **kwargs: Any
) -> VmasVectorEnv:
    """Make a VMAS scenario whose agents observe entities.

    Args:
        num_envs: Worlds; the vector environment has a row for each agent of each.
        scenario: Name in `vmas.scenarios`.
        layout: Where entities stand; known for `VMAS_LAYOUTS`.
        **kwargs: Passed to `vmas.make_env`: `device`, `max_steps`, `continuous_actions` (default
            False here), and options of the scenario such as `n_agents`.

    Raises:
        ValueError: For a scenario without a known layout.
    """
    vmas = require("vmas", PACKAGE, "pip install vmas")
    if layout is None:
        if scenario not in VMAS_LAYOUTS:
            raise ValueError(
                f"layout must be given for scenarios other than {sorted(VMAS_LAYOUTS)}, got "
                f"{scenario!r}{nearest(scenario, VMAS_LAYOUTS)}"
            )
        names = ("n_agents", "n_food", "obs_agents")
        layout = VMAS_LAYOUTS[scenario](**{k: kwargs[k] for k in names if k in kwargs})
    kwargs = {"continuous_actions": False, "clamp_actions": True, **kwargs}
    return VmasVectorEnv(vmas.make_env(scenario, num_envs=num_envs, **kwargs), layout)


def _observe(env: Any) -> list[Tensor]:
    (observations,) = env.get_from_scenario(
        get_observations=True, get_rewards=False, get_infos=False, get_dones=False
    )
    observed: list[Tensor] = observations
    return observed


def _convert(space: Any) -> spaces.Space[Any]:
    """Turn a space of the old gym into one of gymnasium."""
    if hasattr(space, "nvec"):
        return spaces.MultiDiscrete(space.nvec)
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    return spaces.Box(space.low, space.high, dtype=np.float32)


def _tensors(
    roots: list[Any], num_worlds: int
) -> Iterator[tuple[tuple[Any, ...], Any, Any, Tensor]]:
    """Yield (place, holder, key, tensor) of every tensor of worlds below some objects.

    Only objects of VMAS and of the scenario's module are looked into, and containers.
    """
    modules = {"vmas", *(type(root).__module__.split(".")[0] for root in roots)}
    seen: set[int] = set()
    todo: list[tuple[tuple[Any, ...], Any]] = [((i,), root) for i, root in enumerate(roots)]
    while todo:
        place, holder = todo.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        for key, value in _items(holder):
            if isinstance(value, Tensor):
                if value.dim() and len(value) == num_worlds:
                    yield (*place, key), holder, key, value
            elif isinstance(value, (list, tuple, Mapping)) or _belongs(value, modules):
                todo.append(((*place, key), value))


def _belongs(value: Any, modules: set[str]) -> bool:
    return hasattr(value, "__dict__") and type(value).__module__.split(".")[0] in modules


def _items(holder: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(holder, Mapping):
        yield from holder.items()
    elif isinstance(holder, (list, tuple)):
        yield from enumerate(holder)
    else:
        yield from vars(holder).items()


def _put(holder: Any, key: Any, value: Tensor) -> None:
    if isinstance(holder, (dict, list)):
        holder[key] = value
    elif not isinstance(holder, tuple):
        vars(holder)[key] = value
