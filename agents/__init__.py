"""PPO for entities: policy, rollout, update, checkpoints, monitoring, command line."""

if __name__ == "agents":
    raise ImportError("import entity_encoder.agents, not agents: it is no top-level package")

from entity_encoder.agents.advantages import gae, normalise_advantages
from entity_encoder.agents.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.evaluate import EvaluationResult, evaluate
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.ppo import PPO
from entity_encoder.agents.presets import PRESETS, config_for
from entity_encoder.agents.saved import load_policy
from entity_encoder.agents.workers import FactoryVectorEnv, WorkerError

__all__ = [
    "PPO",
    "PRESETS",
    "Checkpoint",
    "EntityPolicy",
    "Environments",
    "EvaluationResult",
    "FactoryVectorEnv",
    "PPOConfig",
    "WorkerError",
    "config_for",
    "evaluate",
    "gae",
    "load_checkpoint",
    "load_policy",
    "normalise_advantages",
    "save_checkpoint",
]
