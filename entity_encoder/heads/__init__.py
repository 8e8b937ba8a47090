"""Heads that read an encoding: scores per set, per entity and for pointing; distributions."""

from entity_encoder.heads.base import ActionHead
from entity_encoder.heads.factory import make_action_head
from entity_encoder.heads.scores import PerEntityHead, PointerHead, PooledHead

__all__ = ["ActionHead", "PerEntityHead", "PointerHead", "PooledHead", "make_action_head"]
