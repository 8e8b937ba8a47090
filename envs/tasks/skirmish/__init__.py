"""Skirmish: two armies, one of which the policy commands."""

from entity_encoder.envs.tasks.skirmish.task import Opponent, Skirmish

__all__ = ["Opponent", "Skirmish"]
