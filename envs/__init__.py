"""Entity environments: the base class, the tasks under `Entity/`, and what surrounds them."""

if __name__ == "envs":
    raise ImportError("import entity_encoder.envs, not envs: it is no top-level package")

from entity_encoder.envs.checker import EnvReport, check_entity_env
from entity_encoder.envs.groups import Global, Group
from entity_encoder.envs.registration import TASKS, find_task, register_tasks
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.single import EntityEnv
from entity_encoder.envs.vector import EntityVectorEnv, State

__all__ = [
    "TASKS",
    "Block",
    "EntityEnv",
    "EntityVectorEnv",
    "EnvReport",
    "FlatToEntities",
    "Global",
    "GraphToEntities",
    "Group",
    "Layout",
    "Rng",
    "SequenceToEntities",
    "State",
    "check_entity_env",
    "find_task",
    "register_tasks",
]

register_tasks()
