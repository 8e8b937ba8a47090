"""Make the tasks known to gymnasium, in the namespace `Entity`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from entity_encoder.envs.vector import EntityVectorEnv

__all__ = ["TASKS", "find_task", "make_vector_env", "register_task", "register_tasks"]

#: Module of each task below `entity_encoder.envs.tasks`, by class name.
TASKS = {
    "CherryPick": "cherry_pick",
    "Count": "count",
    "Coverage": "coverage",
    "FloorIsLava": "floor_is_lava",
    "LockChain": "lock_chain",
    "Minefield": "minefield",
    "MultiSnake": "multi_snake",
    "PickMatchingBalls": "pick_matching_balls",
    "RockPaperScissors": "rock_paper_scissors",
    "Skirmish": "skirmish",
    "Sorter": "sorter",
    "Triage": "triage",
    "Xor": "xor",
}


def find_task(name: str) -> type[EntityVectorEnv]:
    """Return the task's class.

    Raises:
        ValueError: When there is none of that name.
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {sorted(TASKS)}, got {name!r}")
    task: type[EntityVectorEnv] = getattr(
        import_module(f"entity_encoder.envs.tasks.{TASKS[name]}"), name
    )
    return task


def make_vector_env(
    task: str | type[EntityVectorEnv], num_envs: int = 1, **options: Any
) -> EntityVectorEnv:
    """Build a task's vector environment; the entry point of `gymnasium.make_vec`."""
    make: Any = find_task(task) if isinstance(task, str) else task
    env: EntityVectorEnv = make(num_envs, **options)
    return env


def register_task(env_id: str, task: str | type[EntityVectorEnv]) -> None:
    """Register a task for `gymnasium.make`, `make_vec` and training, as ours are.

    Args:
        env_id: Such as "Chase-v0".
        task: A subclass of `EntityVectorEnv`, or the name of one of ours.
    """
    gymnasium.register(
        env_id,
        entry_point="entity_encoder.envs.single:EntityEnv",
        vector_entry_point="entity_encoder.envs.registration:make_vector_env",
        kwargs={"task": task},
    )


def register_tasks() -> None:
    """Register every task as `Entity/<name>-v0`, for `make` and `make_vec`; once."""
    for name in TASKS:
        if f"Entity/{name}-v0" not in gymnasium.registry:
            register_task(f"Entity/{name}-v0", name)
