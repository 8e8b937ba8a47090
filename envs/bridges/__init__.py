"""Other people's environments as entities: thin wrappers, each for one library or one format."""

from entity_encoder.envs.bridges.flat import FlatToEntities
from entity_encoder.envs.bridges.graph import GraphToEntities
from entity_encoder.envs.bridges.highway import HighwayEntities, make_highway
from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.envs.bridges.parallel import AgentView, ParallelVectorEnv
from entity_encoder.envs.bridges.registration import register_bridges
from entity_encoder.envs.bridges.sequence import SequenceToEntities

__all__ = [
    "AgentView",
    "Block",
    "FlatToEntities",
    "GraphToEntities",
    "HighwayEntities",
    "Layout",
    "ParallelVectorEnv",
    "SequenceToEntities",
    "make_highway",
    "register_bridges",
]
