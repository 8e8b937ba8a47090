"""Make the environments that training was asked for: by id, by factories, or as they are."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.halves import Halves
from entity_encoder.agents.lanes import Factory
from entity_encoder.agents.workers import FactoryVectorEnv
from entity_encoder.errors import nearest
from entity_encoder.schema import EntitySchema

__all__ = ["is_array_task", "make_environments", "make_training_environments", "spec_of"]


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
        ValueError: For an id that nobody registered, with the nearest one; for workers where
            environments are stepped as arrays.
        TypeError: For anything else than the three kinds.
    """
    factories = _factories(env, num_envs, env_kwargs)
    if factories is not None:
        return FactoryVectorEnv(factories, workers=workers)
    if workers:
        name = env if isinstance(env, str) else type(env.unwrapped).__name__  # type: ignore[union-attr]
        raise ValueError(
            f"workers must be 0 for {name}, whose environments are stepped together, got {workers}"
        )
    if isinstance(env, VectorEnv):
        return env
    assert isinstance(env, str)
    kwargs = dict(env_kwargs or {})
    if is_array_task(env):
        # Tensors from the environment to the policy, and no step spent on a reset.
        ours = {"output": "torch", "device": device, "autoreset_mode": AutoresetMode.SAME_STEP}
        kwargs = {**ours, **kwargs}
    return gymnasium.make_vec(env, num_envs, vectorization_mode="vector_entry_point", **kwargs)


def make_training_environments(
    env: str | VectorEnv[Any, Any, Any] | Sequence[Any],
    config: PPOConfig,
    *,
    device: torch.device,
    env_kwargs: Mapping[str, Any] | None = None,
    schema: EntitySchema | None = None,
) -> Environments | Halves:
    """Return what a rollout steps: all environments together, or two halves in turn.

    Args:
        env: As for `make_environments`.
        config: Its num_envs, workers and overlap are read.
        device: Where the policy learns.
        env_kwargs: Options of the environment, for an id.
        schema: What observations contain, instead of what the environment declares.
    """
    factories = _factories(env, config.num_envs, env_kwargs) if config.overlap else None
    if factories is None or len(factories) < 2:
        vector = make_environments(
            env,
            num_envs=config.num_envs,
            workers=config.workers,
            device=device,
            env_kwargs=env_kwargs,
        )
        return Environments(vector, device=device, schema=schema)
    middle, workers = len(factories) // 2, config.workers // 2
    shares = ((factories[:middle], workers), (factories[middle:], config.workers - workers))
    return Halves(
        [
            Environments(FactoryVectorEnv(made, workers=count), device=device, schema=schema)
            for made, count in shares
        ]
    )


def _factories(
    env: str | VectorEnv[Any, Any, Any] | Sequence[Any],
    num_envs: int,
    env_kwargs: Mapping[str, Any] | None,
) -> list[Factory] | None:
    """Return functions that make one environment each; None where they exist as a batch only."""
    if isinstance(env, VectorEnv):
        return None
    if isinstance(env, gymnasium.Env):
        raise TypeError(
            f"env must be an id, a VectorEnv or a list of factories, got a single "
            f"{type(env.unwrapped).__name__}; pass [lambda: MyEnv()] * 8"
        )
    if isinstance(env, str):
        spec = _find(env)
        if spec.vector_entry_point is not None:
            return None
        # Not the id: a worker process does not know what was registered in this one.
        return [functools.partial(gymnasium.make, spec, **(env_kwargs or {}))] * num_envs
    factories = list(env)
    if not factories or not all(callable(factory) for factory in factories):
        raise TypeError(f"env must hold functions that make environments, got {env!r}")
    return factories


def spec_of(env: str) -> Any:
    """Return how an id is registered; of `module:id` the module is imported first.

    Raises:
        gymnasium.error.Error: Nobody registered it.
        ValueError: There is no such module.
    """
    import entity_encoder.envs  # noqa: F401  (registers the tasks)

    module, _, name = env.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0] and error.name != module:
                raise  # the module is there, and itself lacks something
            raise ValueError(
                f"env must name a module before the colon, got {env!r}: there is no module "
                f"{module!r} here or among the installed ones"
            ) from error
    return gymnasium.spec(name)


def _find(env: str) -> Any:
    try:
        return spec_of(env)
    except gymnasium.error.Error as error:
        module, _, name = env.rpartition(":")
        close = nearest(name or module, gymnasium.registry)
        raise ValueError(f"env must be a registered environment id, got {env!r}{close}") from error


def is_array_task(env: str) -> bool:
    """Whether an id makes an `EntityVectorEnv`: one of ours, or one made known by `register_task`.

    Raises:
        ValueError: For an id that nobody registered.
    """
    from entity_encoder.envs.registration import make_vector_env

    entry = _find(env).vector_entry_point
    name = f"{make_vector_env.__module__}:{make_vector_env.__name__}"
    return entry is make_vector_env or entry == name
