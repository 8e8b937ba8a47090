"""Where a task needs other settings than the default: all deviations, in one place."""

from __future__ import annotations

from typing import Any

from entity_encoder.agents.config import PPOConfig

__all__ = ["PRESETS", "config_for"]

#: Environment id -> settings that differ from `PPOConfig()`, each with its reason.
PRESETS: dict[str, dict[str, Any]] = {
    # Real time passes slowly there (a few steps a second), and actions matter for seconds only.
    "highway-fast-v0": {"num_envs": 8, "rollout_steps": 64, "minibatch_size": 128, "gamma": 0.8},
}


def config_for(env: str, **overrides: Any) -> PPOConfig:
    """Return the configuration for an environment id: defaults, its preset, then `overrides`.

    Args:
        env: Environment id; without a preset the default configuration is used.
        overrides: Fields of `PPOConfig` that win over the preset.
    """
    preset = PRESETS.get(env, PRESETS.get(env.rpartition("/")[2], {}))
    return PPOConfig.from_dict({**preset, **overrides})
