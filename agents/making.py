"""Make the environments that training was asked for: by id, by factories, or as they are."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from entity_encoder.agents.workers import FactoryVectorEnv
from entity_encoder.errors import nearest

__all__ = ["make_environments"]


def make_environments(
    env: str | VectorEnv[Any, Any, Any] | Sequence[Any],
    *,
    num_envs: int,
    workers: int = 0,
    device: torch.device | str = "cpu",
    env_kwargs: Mapping[str, Any] | None = None,
) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment.

    Args:
        env: An environment id; a vector environment, returned as it is; or one factory for each
            environment.
        num_envs: How many, for an id.
        workers: Processes that share environments made one by one; tasks stepped as arrays need
            none.
        device: Where tasks stepped as arrays shall live.
        env_kwargs: Options of the environment, for an id.

    Raises:
        ValueError: For an id that nobody registered, with the nearest one.
        TypeError: For anything else than the three kinds.
    """
    kwargs = dict(env_kwargs or {})
    if isinstance(env, VectorEnv):
        return env
    if isinstance(env, gymnasium.Env):
        raise TypeError(
            f"env must be an id, a VectorEnv or a list of factories, got a single "
            f"{type(env.unwrapped).__name__}; pass [lambda: MyEnv()] * 8"
        )
    if not isinstance(env, str):
        factories = list(env)
        if not factories or not all(callable(factory) for factory in factories):
            raise TypeError(f"env must hold functions that make environments, got {env!r}")
        return FactoryVectorEnv(factories, workers=workers)
    spec = _find(env)
    if spec.vector_entry_point is None:
        factory = functools.partial(gymnasium.make, env, **kwargs)
        return FactoryVectorEnv([factory] * num_envs, workers=workers)
    if _is_ours(spec):
        # Tensors from the environment to the policy, and no step spent on a reset.
        ours = {"output": "torch", "device": device, "autoreset_mode": AutoresetMode.SAME_STEP}
        kwargs = {**ours, **kwargs}
    return gymnasium.make_vec(env, num_envs, vectorization_mode="vector_entry_point", **kwargs)


def _find(env: str) -> Any:
    import entity_encoder.envs  # noqa: F401  (registers the tasks)

    try:
        return gymnasium.spec(env)
    except gymnasium.error.Error as error:
        module, _, name = env.rpartition(":")
        close = nearest(name or module, gymnasium.registry)
        raise ValueError(f"env must be a registered environment id, got {env!r}{close}") from error


def _is_ours(spec: Any) -> bool:
    from entity_encoder.envs.registration import make_vector_env

    entry = spec.vector_entry_point
    name = f"{make_vector_env.__module__}:{make_vector_env.__name__}"
    return entry is make_vector_env or entry == name
