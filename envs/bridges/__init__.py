"""Other people's environments as entities: thin wrappers, each for one library or one format."""

from entity_encoder.envs.bridges.highway import HIGHWAY_IDS, HighwayEntities, make_highway
from entity_encoder.envs.bridges.registration import register_bridges

__all__ = ["HIGHWAY_IDS", "HighwayEntities", "make_highway", "register_bridges"]
