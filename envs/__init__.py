"""Entity environments: the base class, the tasks under `Entity/`, bridges to others."""

if __name__ == "envs":
    raise ImportError("import entity_encoder.envs, not envs: it is no top-level package")

from entity_encoder.envs.bridges.flat import FlatToEntities
from entity_encoder.envs.bridges.graph import GraphToEntities
from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.envs.bridges.parallel import AgentView, ParallelVectorEnv
from entity_encoder.envs.bridges.registration import register_bridges
from entity_encoder.envs.bridges.sequence import SequenceToEntities
from entity_encoder.envs.checker import EnvReport, check_entity_env
from entity_encoder.envs.groups import Global, Group
from entity_encoder.envs.parallel import EntityParallelEnv
from entity_encoder.envs.registration import TASKS, find_task, register_task, register_tasks
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.single import EntityEnv
from entity_encoder.envs.vector import EntityVectorEnv, State

__all__ = [
    "TASKS",
    "AgentView",
    "Block",
    "EntityEnv",
    "EntityParallelEnv",
    "EntityVectorEnv",
    "EnvReport",
    "FlatToEntities",
    "Global",
    "GraphToEntities",
    "Group",
    "Layout",
    "ParallelVectorEnv",
    "Rng",
    "SequenceToEntities",
    "State",
    "check_entity_env",
    "find_task",
    "register_task",
    "register_tasks",
]

register_tasks()
register_bridges()
