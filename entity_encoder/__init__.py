"""Entity sets as first-class observations: a masked transformer backbone for RL policies."""

from entity_encoder.encoder import EntityEncoder
from entity_encoder.encoding import EntityEncoding
from entity_encoder.pooling import pool
from entity_encoder.schema import EgoFrame, EntityGroup, EntitySchema, GlobalFeature
from entity_encoder.spaces import PerEntity, SelectEntity
from entity_encoder.transformer import EntityTransformer
from entity_encoder.version import __version__

__all__ = [
    "EgoFrame",
    "EntityEncoder",
    "EntityEncoding",
    "EntityGroup",
    "EntitySchema",
    "EntityTransformer",
    "GlobalFeature",
    "PerEntity",
    "SelectEntity",
    "__version__",
    "pool",
]
