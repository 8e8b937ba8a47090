"""The command line: `entity-encoder train|eval|envs|plot|watch|play|export|bench`."""

from entity_encoder.agents.cli.main import main

__all__ = ["main"]
