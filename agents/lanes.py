"""Several single environments stepped one after the other, writing into shared arrays.

A lane is what one process does: this one, or a worker. Both run this code, so the number of
workers changes the speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_byte
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

__all__ = ["Buffers", "Factory", "Lane", "OutcomeNames", "make_distinct"]

Factory = Callable[[], gymnasium.Env[Any, Any]]

OutcomeNames = ("score", "success")

# Wrappers that hold nothing an episode depends on, but for the clock of TimeLimit.
STATELESS = (OrderEnforcing, PassiveEnvChecker, TimeLimit)


@dataclass
class Buffers:
    """Arrays of all environments, in the memory of one process or shared by several.

    Attributes:
        observation: (E, *shape) per key: what comes next.
        final: The same, the last observation of an episode, where one ended.
        reward: (E,) float64.
        terminated: (E,) bool.
        truncated: (E,) bool.
        outcomes: (E,) float64 per name, NaN where nothing was reported.
    """

    observation: dict[str, np.ndarray]
    final: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    outcomes: dict[str, np.ndarray]

    @classmethod
    def describe(cls, space: spaces.Dict, num_envs: int) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return shape and type of every array, by a flat name."""
        layout: dict[str, tuple[tuple[int, ...], str]] = {}
        for key, part in space.spaces.items():
            if part.shape is None or part.dtype is None:
                raise ValueError(
                    f"observation {key!r} must be a space of fixed shape, got {part}; wrap the "
                    "environment with GraphToEntities or SequenceToEntities first"
                )
            for kind in ("observation", "final"):
                layout[f"{kind}/{key}"] = ((num_envs, *part.shape), np.dtype(part.dtype).str)
        layout["reward"] = ((num_envs,), "f8")
        layout["terminated"] = layout["truncated"] = ((num_envs,), "?")
        layout |= {f"outcomes/{name}": ((num_envs,), "f8") for name in OutcomeNames}
        return layout

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Buffers:
        """Sort arrays by the names of `describe`."""

        def below(kind: str) -> dict[str, np.ndarray]:
            return {k.split("/", 1)[1]: v for k, v in arrays.items() if k.startswith(f"{kind}/")}

        return cls(
            below("observation"),
            below("final"),
            arrays["reward"],
            arrays["terminated"],
            arrays["truncated"],
            below("outcomes"),
        )

    @classmethod
    def shared(cls, layout: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, Any]:
        """Allocate memory that processes can share; pass it to `view` in each of them."""
        return {
            name: RawArray(c_byte, max(1, int(np.prod(shape)) * np.dtype(kind).itemsize))
            for name, (shape, kind) in layout.items()
        }

    @classmethod
    def view(
        cls, memory: dict[str, Any], layout: dict[str, tuple[tuple[int, ...], str]]
    ) -> Buffers:
        """Look at shared memory as arrays."""
        arrays = {}
        for name, (shape, kind) in layout.items():
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(memory[name], kind, count).reshape(shape)
        return cls.from_arrays(arrays)


class Lane:
    """Step environments `first`, `first + 1`, ... of a batch; a finished one begins anew at once.

    Args:
        envs: The environments.
        first: Number of the first of them in the batch.
        buffers: Where everything is written.
    """

    def __init__(
        self, envs: Sequence[gymnasium.Env[Any, Any]], first: int, buffers: Buffers
    ) -> None:
        self.envs = list(envs)
        self.first = first
        self.buffers = buffers

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Begin an episode everywhere, with one seed each."""
        for place, (env, seed) in enumerate(zip(self.envs, seeds, strict=True), self.first):
            with _named(place):
                observation, _ = env.reset(seed=seed)
                self._write(self.buffers.observation, place, observation)

    def step(self, actions: Sequence[Any]) -> None:
        """Take one step everywhere."""
        b = self.buffers
        for place, (env, action) in enumerate(zip(self.envs, actions, strict=True), self.first):
            with _named(place):
                observation, reward, terminated, truncated, info = env.step(action)
                b.reward[place] = reward
                b.terminated[place], b.truncated[place] = terminated, truncated
                ended = terminated or truncated
                for name, values in b.outcomes.items():
                    values[place] = info.get(name, np.nan) if ended else np.nan
                if ended:
                    self._write(b.final, place, observation)
                    observation, _ = env.reset()
                self._write(b.observation, place, observation)

    def _write(self, where: dict[str, np.ndarray], place: int, observation: Any) -> None:
        for key, array in where.items():
            value = np.asarray(observation[key])
            if value.shape != array.shape[1:]:
                raise ValueError(
                    f"observation {key!r} must have the shape of its space, {array.shape[1:]}, "
                    f"got {value.shape}"
                )
            if not np.can_cast(value.dtype, array.dtype, "same_kind"):
                raise ValueError(
                    f"observation {key!r} must have the dtype of its space, {array.dtype}, got "
                    f"{value.dtype}"
                )
            array[place] = value

    def get_state(self) -> list[Any] | None:
        """Return the state of each environment; None when one of them cannot tell."""
        states = [_get_state(env) for env in self.envs]
        return None if any(state is None for state in states) else states

    def set_state(self, states: Sequence[Any]) -> None:
        """Continue every environment where `get_state` was called."""
        for env, state in zip(self.envs, states, strict=True):
            _set_state(env, state)

    def render(self) -> list[Any]:
        """Return what each environment draws."""
        return [env.render() for env in self.envs]

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


class _named:  # noqa: N801  (reads as a statement)
    """Say in which environment an exception was raised."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.add_note(f"in environment {self.place}")


def make_distinct(factories: Sequence[Factory]) -> list[gymnasium.Env[Any, Any]]:
    """Make one environment per factory.

    Raises:
        ValueError: When two factories return the same object, or something that is no
            environment, or spaces differ.
    """
    envs: list[gymnasium.Env[Any, Any]] = []
    seen: dict[int, int] = {}
    for place, factory in enumerate(factories):
        env = factory()
        if not isinstance(env, gymnasium.Env):
            raise ValueError(
                f"factory {place} must return a gymnasium.Env, got {type(env).__name__}"
            )
        first = seen.setdefault(id(env.unwrapped), place)
        if first != place:
            raise ValueError(
                f"factories must make different environments, got the same object from number "
                f"{first} and {place}; make it inside the factory: lambda: MyEnv()"
            )
        for name in ("observation_space", "action_space"):
            if envs and getattr(env, name) != getattr(envs[0], name):
                raise ValueError(
                    f"{name} must be the same in every environment, got "
                    f"{getattr(env, name)} from factory {place}"
                )
        envs.append(env)
    return envs


def _get_state(env: gymnasium.Env[Any, Any]) -> Any:
    """Return a wrapped environment's state; None when something in the stack may hold more."""
    clocks = []
    while "get_state" not in dir(env):
        if not isinstance(env, STATELESS):
            return None
        clocks.append(getattr(env, "_elapsed_steps", None))
        env = env.env
    return {"clocks": clocks, "env": env.get_state()}  # type: ignore[attr-defined]


def _set_state(env: gymnasium.Env[Any, Any], state: Any) -> None:
    for clock in state["clocks"]:
        if clock is not None:
            env._elapsed_steps = clock  # type: ignore[attr-defined]
        if isinstance(env, OrderEnforcing):
            env._has_reset = True
        assert isinstance(env, STATELESS)
        env = env.env
    env.set_state(state["env"])  # type: ignore[attr-defined]
