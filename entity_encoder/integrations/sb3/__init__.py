"""Stable-Baselines3 and sb3-contrib.

    PPO("MultiInputPolicy", env, policy_kwargs=policy_kwargs(env)).learn(
        100_000, callback=NormalisationCallback()
    )

`EntityFeaturesExtractor` serves every algorithm with "MultiInputPolicy"; `EntityPolicy` lets PPO
and A2C also point at entities. `ActionMasks` feeds MaskablePPO, `EntityVecNormalize` replaces
VecNormalize, `GymnasiumVecEnv` steps array-vectorised environments, `load_with_slots` loads a
model into a larger world.
"""

from entity_encoder.integrations.extras import missing_library

try:
    from entity_encoder.integrations.sb3.extractor import EntityFeaturesExtractor, policy_kwargs
    from entity_encoder.integrations.sb3.masks import ActionMasks, action_masks
    from entity_encoder.integrations.sb3.normalise import EntityVecNormalize
    from entity_encoder.integrations.sb3.policy import EntityPolicy
    from entity_encoder.integrations.sb3.slots import load_with_slots
    from entity_encoder.integrations.sb3.statistics import NormalisationCallback
    from entity_encoder.integrations.sb3.vector import GymnasiumVecEnv
except ImportError as error:
    raise missing_library(error, "stable_baselines3", extra="sb3") from error

__all__ = [
    "ActionMasks",
    "EntityFeaturesExtractor",
    "EntityPolicy",
    "EntityVecNormalize",
    "GymnasiumVecEnv",
    "NormalisationCallback",
    "action_masks",
    "load_with_slots",
    "policy_kwargs",
]
