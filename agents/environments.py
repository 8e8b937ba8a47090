"""One interface to every vector environment, whatever it does when an episode ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from entity_encoder.agents.observations import ObservationReader
from entity_encoder.agents.trees import Tree, map_tree
from entity_encoder.agents.workers import FactoryVectorEnv
from entity_encoder.schema import EntitySchema

__all__ = ["Environments", "Final", "Step", "find_schema"]

#: What an environment may report when an episode ends, besides its return and length.
OUTCOMES = ("score", "success")


@dataclass
class Final:
    """Last observations of episodes, where the environment has already begun the next ones.

    Attributes:
        rows: (k,) int64, the environments they belong to; None: all E, of which only those mean
            something whose episode ended.
        observation: Leaves (k, ...) or (E, ...).
    """

    rows: Tensor | None
    observation: dict[str, Tensor]


@dataclass
class Step:
    """What happened in one step; all tensors are on the training device.

    Attributes:
        reward: (E,) float32.
        terminated: (E,) bool.
        truncated: (E,) bool; False where terminated.
        valid: (E,) bool, False where the step only began an episode and the action did nothing.
        final: The true final observations, where the next observation is another episode's.
        outcomes: `score` and `success` if reported, (E,) float32, NaN where not.
    """

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    final: Final | None
    outcomes: dict[str, Tensor]


class Environments:
    """Step a `gymnasium.vector.VectorEnv` and say what each row of a rollout means.

    With autoreset mode NEXT_STEP the observation returned at the end of an episode is the final
    one, and the step after it only resets: its rows come back with `valid` False. With SAME_STEP
    and DISABLED every row is valid, and final observations come beside the next ones.

    Args:
        env: The vector environment.
        device: Where the policy learns.
        schema: What the observations contain; default `find_schema(env)`.
        autoreset_mode: For environments whose metadata does not say it.

    Attributes:
        observation: What the policy sees next, leaves (E, ...).
        ended: (E,) bool, True where the next step only begins an episode (NEXT_STEP).
        begins: (E,) bool, True where `observation` is the first of an episode.

    Raises:
        ValueError: For an autoreset mode that is not declared or not known, for environments that
            are the same object, and for spaces that cannot be read.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        device: torch.device | str = "cpu",
        schema: EntitySchema | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        _check_distinct(env)
        self.env = env
        self.device = torch.device(device)
        self.num_envs: int = env.num_envs
        self.schema = find_schema(env) if schema is None else schema
        self.mode = _read_mode(env, autoreset_mode)
        space = env.single_observation_space
        assert isinstance(space, spaces.Dict)
        self.observation_space = space
        self.action_space: spaces.Space[Any] = env.single_action_space
        self.is_torch = getattr(env, "output", None) == "torch"
        self._reader = ObservationReader(space, self.schema, self.device)
        self._sent: Any = None
        self.observation: dict[str, Tensor] = {}
        self.ended = self._flags(np.zeros(self.num_envs, bool))
        self.begins = ~self.ended

    def reset(self, seed: int | None = None) -> dict[str, Tensor]:
        """Begin an episode everywhere and return the observation."""
        observation, infos = self.env.reset(seed=seed)
        self.observation = self._reader.read(observation)
        # Rows whose agent is not there yet take no action until it appears.
        absent = infos.get("absent")
        self.ended = torch.zeros_like(self.ended) if absent is None else self._flags(absent)
        self.begins = torch.ones_like(self.ended)
        return self.observation

    def step(self, action: Tree) -> Step:
        """Take one step; `action` is what the environment shall receive, leaves (E, ...)."""
        self.send(action)
        return self.receive()

    def send(self, action: Tree) -> None:
        """Begin a step; the processes of an environment that has some work on it meanwhile."""
        self._sent = self._export(action)
        if isinstance(self.env, FactoryVectorEnv):
            self.env.step_async(self._sent)

    def receive(self) -> Step:
        """Finish the step that `send` began."""
        if isinstance(self.env, FactoryVectorEnv):
            result = self.env.step_wait()
        else:
            result = self.env.step(self._sent)
        observation, reward, terminated, truncated, infos = result
        valid = ~self.ended
        step = Step(
            reward=self._rewards(reward),
            terminated=self._flags(terminated),
            truncated=self._flags(truncated),
            valid=valid,
            final=None,
            outcomes=self._outcomes(infos),
        )
        step.truncated = step.truncated & ~step.terminated
        ended = step.terminated | step.truncated
        if self.mode is AutoresetMode.NEXT_STEP:
            self.begins, self.ended = self.ended, ended
        else:
            self.begins = ended
            if self.mode is AutoresetMode.SAME_STEP:
                step.final = self._final(infos, step.truncated)
            elif bool(ended.any()):
                observation = self._restart(observation, ended, step)
        self.observation = self._reader.read(observation)
        return step

    def render(self) -> Any:
        """Return the frames of all environments."""
        return self.env.render()

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def get_state(self) -> dict[str, Any]:
        """Return what the future depends on; "env" is None where the environment cannot tell."""
        content = self.env.get_state() if hasattr(self.env, "get_state") else None
        return {
            "env": content,
            "observation": dict(self.observation),
            "ended": self.ended,
            "begins": self.begins,
        }

    def set_state(self, content: Mapping[str, Any]) -> bool:
        """Continue where `get_state` was called; False where the environment cannot."""
        if content["env"] is None or not hasattr(self.env, "set_state"):
            return False
        self.env.set_state(content["env"])
        self.observation = {k: v.to(self.device) for k, v in content["observation"].items()}
        self.ended = content["ended"].to(self.device)
        self.begins = content["begins"].to(self.device)
        return True

    def _export(self, action: Tree) -> Tree:
        """Bring an action into the form and type that the environment's space has."""
        if self.is_torch:
            return action
        return _cast(action, self.action_space)

    def _flags(self, values: Any) -> Tensor:
        return torch.as_tensor(values, device=self.device).bool()

    def _rewards(self, values: Any) -> Tensor:
        reward = torch.as_tensor(values, dtype=torch.float32)
        if reward.shape != (self.num_envs,):
            raise ValueError(
                f"reward must have shape ({self.num_envs},), got {tuple(reward.shape)}"
            )
        if reward.device.type == "cpu" and not bool(torch.isfinite(reward).all()):
            env = int((~torch.isfinite(reward)).nonzero()[0])
            raise ValueError(
                f"reward must be finite, got {float(reward[env])} in environment {env}"
            )
        return reward.to(self.device)

    def _outcomes(self, infos: Mapping[str, Any]) -> dict[str, Tensor]:
        """Read what stands in the infos where its mask `_<name>` is True."""
        final = infos.get("final_info")
        outcomes = {}
        for name in OUTCOMES:
            found = final if isinstance(final, Mapping) and name in final else infos
            if name in found and f"_{name}" in found:
                values = found[name]
                if not isinstance(values, Tensor):
                    values = torch.as_tensor(np.asarray(values, np.float32))
                mask = self._flags(found[f"_{name}"])
                values = values.to(self.device, torch.float32)
                outcomes[name] = values.masked_fill(~mask, torch.nan)
        return outcomes

    def _final(self, infos: Mapping[str, Any], truncated: Tensor) -> Final | None:
        """Collect the final observations of truncated episodes (SAME_STEP)."""
        if self.device.type != "cpu" and self.is_torch:
            return Final(None, self._reader.read(infos["final_obs"]))  # to count them would wait
        rows = truncated.nonzero().flatten()  # after a termination nobody asks for the value
        if not len(rows):
            return None
        given = infos["final_obs"]
        if isinstance(given, Mapping):
            batch = {key: given[key][self._index(rows)] for key in self._reader.keys}
        else:  # gymnasium's format: an object array with a dict or None for every environment
            picked = [given[row] for row in rows.tolist()]
            batch = {key: np.stack([one[key] for one in picked]) for key in self._reader.keys}
        return Final(rows, self._reader.read(batch))

    def _restart(self, observation: Any, ended: Tensor, step: Step) -> Any:
        """Reset where an episode ended (DISABLED), and keep the last observations."""
        rows = step.truncated.nonzero().flatten()
        if len(rows):
            where = self._index(rows)
            batch = {key: observation[key][where] for key in self._reader.keys}
            step.final = Final(rows, self._reader.read(batch))
        observation, _ = self.env.reset(options={"reset_mask": self._index(ended)})
        return observation

    def _index(self, rows: Tensor) -> Any:
        """Return rows in the form in which the environment's own arrays are indexed."""
        if not self.is_torch:
            return rows.cpu().numpy()
        device: torch.device = getattr(self.env, "device", self.device)
        return rows.to(device)


def find_schema(env: VectorEnv[Any, Any, Any]) -> EntitySchema:
    """Return the schema that an environment declares as `entity_schema`, or read its space."""
    for holder in (env, env.unwrapped, *getattr(env.unwrapped, "envs", [])[:1]):
        # What a wrapper declares goes before what it wraps: it may show something else.
        schema = getattr(holder, "entity_schema", None)
        if not isinstance(schema, EntitySchema):
            schema = getattr(getattr(holder, "unwrapped", None), "entity_schema", None)
        # A wrapper below others: only this way do gymnasium's own wrappers show what it declares.
        if isinstance(holder, gymnasium.Env) and holder.has_wrapper_attr("entity_schema"):
            schema = holder.get_wrapper_attr("entity_schema")
        if isinstance(schema, EntitySchema):
            return schema
    return EntitySchema.from_space(env.single_observation_space)


def _check_distinct(env: VectorEnv[Any, Any, Any]) -> None:
    seen: dict[int, int] = {}
    for place, single in enumerate(getattr(env.unwrapped, "envs", [])):
        first = seen.setdefault(id(getattr(single, "unwrapped", single)), place)
        if first != place:
            raise ValueError(
                f"environments must be different objects, got the same one as number {first} and "
                f"{place}; each factory must make a new one"
            )


def _read_mode(env: VectorEnv[Any, Any, Any], given: AutoresetMode | str | None) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode") if given is None else given
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    names = [known.name for known in AutoresetMode]
    raise ValueError(
        f"autoreset_mode of {type(env.unwrapped).__name__} must be one of {names}, got {mode!r}; "
        'a vector environment declares it in metadata["autoreset_mode"]'
    )


def _cast(action: Tree, space: spaces.Space[Any]) -> Tree:
    if isinstance(space, spaces.Dict):
        return {key: _cast(action[key], part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_cast(a, part) for a, part in zip(action, space.spaces, strict=True))
    return map_tree(lambda x: x.cpu().numpy().astype(space.dtype, copy=False), action)
