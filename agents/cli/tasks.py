"""Look at an environment before anything is spent on it: what it shows, asks and pays."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from entity_encoder.agents.making import spec_of
from entity_encoder.errors import nearest
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = [
    "TaskInfo",
    "action_kind",
    "describe_task",
    "find_spec",
    "list_tasks",
    "references_of",
    "task_page",
]

NAMESPACE = "Entity"
UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True)
class TaskInfo:
    """What a person wants to know before choosing a task.

    Args:
        id: What `gymnasium.make` calls it.
        description: One line.
        actions: Kind of the action space, in words.
        groups: Capacity of each group of entities.
        random_return: Mean return of random legal actions; None where nobody measured it.
        reference_return: Mean return of the scripted policy; None where there is none.
    """

    id: str
    description: str
    actions: str
    groups: dict[str, int]
    random_return: float | None
    reference_return: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def list_tasks() -> list[str]:
    """Return the ids of the registered tasks, in order."""
    import entity_encoder.envs  # noqa: F401  (registers the tasks)

    return sorted(i for i, spec in gymnasium.registry.items() if spec.namespace == NAMESPACE)


def find_spec(env: str) -> Any:
    """Return how an environment is registered.

    Raises:
        ValueError: It is not; with the nearest id.
    """
    tasks = list_tasks()
    try:
        return spec_of(env)
    except gymnasium.error.Error as error:
        module, _, name = env.rpartition(":")
        close = "" if module else nearest(env, tasks) or nearest(f"{NAMESPACE}/{env}", tasks)
        close = close or nearest(name, gymnasium.registry)
        raise ValueError(
            f"environment must be a registered id, got {env!r}{close} "
            "(entity-encoder envs lists the tasks)"
        ) from error


def describe_task(env: str, env_kwargs: Mapping[str, Any] | None = None) -> TaskInfo:
    """Make one environment, read it, and close it.

    Raises:
        ValueError: For an unknown id, an option that the task does not have, or an observation
            space that cannot be read.
        ImportError: A package that the environment needs is missing.
    """
    find_spec(env)
    try:
        made = _make(env, env_kwargs or {})
    except TypeError as error:
        unknown = UNEXPECTED.search(str(error))
        if unknown is None or not env_kwargs:
            raise
        options = _options(env)
        close = nearest(unknown.group(1), options)
        raise ValueError(
            f"--env-arg must name an option of {env} ({', '.join(options)}), "
            f"got {unknown.group(1)!r}{close}"
        ) from error
    try:
        return _read(env, made)
    finally:
        made.close()


def task_page(env: str) -> str:
    """Return the docstring of a task: its whole description."""
    find_spec(env)
    made = _make(env, {})
    holder = _task_of(made)
    made.close()
    return inspect.cleandoc(type(holder).__doc__ or "no description")


def action_kind(space: spaces.Space[Any]) -> str:
    """Say in words what an action is."""
    match space:
        case SelectEntity():
            return f"point at one {space.group}"
        case PerEntity() if space.target is not None:
            return f"every {space.group}: {space.n} choices, or one {space.target}"
        case PerEntity():
            return f"every {space.group}: {space.n} choices"
        case spaces.Discrete():
            return f"{space.n} choices"
        case spaces.MultiDiscrete():
            return f"{len(space.nvec)} choices of {', '.join(map(str, space.nvec.tolist()))}"
        case spaces.MultiBinary():
            return f"{space.n} switches"
        case spaces.Box():
            return f"{' x '.join(map(str, space.shape))} numbers"
        case spaces.Dict():
            return "; ".join(f"{key}: {action_kind(part)}" for key, part in space.items())
        case spaces.Tuple():
            return "; ".join(action_kind(part) for part in space)
    return type(space).__name__


def references_of(task: Any) -> tuple[float, float] | None:
    """Return what random actions and the scripted policy get, where the task has such a policy."""
    from entity_encoder.envs.vector import EntityVectorEnv

    scripted = getattr(type(task), "reference_policy", EntityVectorEnv.reference_policy)
    if scripted is EntityVectorEnv.reference_policy:
        return None
    return float(task.random_return), float(task.reference_return)


def _make(env: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any] | VectorEnv:
    """Make one environment; one whose agents are rows comes as a vector environment only."""
    if spec_of(env).entry_point is None:
        mode = "vector_entry_point"
        return gymnasium.make_vec(env, 1, vectorization_mode=mode, **env_kwargs)
    return gymnasium.make(env, disable_env_checker=True, **env_kwargs)


def _read(env: str, made: gymnasium.Env[Any, Any] | VectorEnv) -> TaskInfo:
    schema: EntitySchema
    if isinstance(made, VectorEnv):
        schema = getattr(made, "entity_schema")  # noqa: B009  (not every vector environment has it)
    elif made.has_wrapper_attr("entity_schema"):
        schema = made.get_wrapper_attr("entity_schema")
    else:
        schema = EntitySchema.from_space(made.observation_space)
    task = _task_of(made)
    page = inspect.cleandoc(type(task).__doc__ or "")
    random, reference = references_of(task) or (None, None)
    return TaskInfo(
        id=env,
        description=page.splitlines()[0] if page else "",
        actions=action_kind(getattr(made, "single_action_space", made.action_space)),
        groups={group.name: group.slots for group in schema.groups},
        random_return=random,
        reference_return=reference,
    )


def _options(env: str) -> list[str]:
    """Return the names of a task's own options: the arguments of its class."""
    made = _make(env, {})
    parameters = inspect.signature(type(_task_of(made)).__init__).parameters.values()
    made.close()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ours = ("self", "num_envs", "env", "render_mode")  # chosen by other means
    return [p.name for p in parameters if p.kind in kinds and p.name not in ours]


def _task_of(made: gymnasium.Env[Any, Any] | VectorEnv) -> Any:
    """Return what carries the description: the task behind an `EntityEnv`, or the bridge."""
    if isinstance(made, VectorEnv):
        return getattr(made, "view", made)
    if made.has_wrapper_attr("task"):
        return made.get_wrapper_attr("task")
    layer: Any = made
    while isinstance(layer, gymnasium.Wrapper):
        if "entity_schema" in vars(layer) or hasattr(type(layer), "entity_schema"):
            return layer
        layer = layer.env
    return layer
