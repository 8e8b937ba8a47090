"""The encoder as a features extractor of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from entity_encoder.encoder import EntityEncoder
from entity_encoder.observation import as_mask
from entity_encoder.schema import EntitySchema

__all__ = ["EntityFeaturesExtractor", "policy_kwargs", "restore_masks", "schema_of"]


class EntityFeaturesExtractor(BaseFeaturesExtractor):
    """Encode entities for any algorithm with "MultiInputPolicy": PPO, A2C, DQN, SAC, MaskablePPO.

    The masks that SB3 turned into floats are restored, and the encoder keeps the weights it was
    initialised with: SB3's orthogonal initialisation touches only the heads behind it.

    Args:
        observation_space: Given by SB3.
        schema: What the observation contains; default: read from the space. Environments of
            `entity_encoder.envs` have an `entity_schema` with positions and a frame.
        **encoder: Arguments of `EntityEncoder`.

    Raises:
        ValueError: For a space that cannot be read; in `forward`, for a mask that a normalising
            wrapper has changed.
    """

    def __init__(
        self, observation_space: spaces.Dict, *, schema: EntitySchema | None = None, **encoder: Any
    ) -> None:
        module = EntityEncoder(observation_space if schema is None else schema, **encoder)
        super().__init__(observation_space, module.output_dim)
        self.encoder = module

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Encode a batch: dict of (B, ...) to (B, features_dim)."""
        pooled: Tensor = self.encoder(restore_masks(self.encoder.schema, observations)).pooled
        return pooled

    def apply(self, fn: Callable[[nn.Module], None]) -> EntityFeaturesExtractor:
        """Apply a function to all modules inside, except SB3's initialisation of weights.

        Policies with `ortho_init=True`, the default of PPO and A2C, would draw all linear layers
        of the encoder anew and set its biases to zero.
        """
        if getattr(fn, "func", fn) is not BasePolicy.init_weights:
            super().apply(fn)
        return self


def restore_masks(schema: EntitySchema, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the observations with boolean masks.

    Raises:
        ValueError: When a mask holds anything but 0 and 1, naming SB3's usual cause.
    """
    restored = dict(observations)
    for key in (group.mask_key for group in schema.groups):
        if key is None or key not in restored:
            continue
        mask = restored[key]
        try:
            restored[key] = as_mask(mask, key=key, check=mask.device.type == "cpu")
        except ValueError as error:
            raise ValueError(
                f"{error}: VecNormalize would also be wrong about absent entities; use "
                "EntityVecNormalize, or NormalisationCallback without any wrapper"
            ) from error
    return restored


def policy_kwargs(
    env: gymnasium.Env[Any, Any] | VecEnv | None = None,
    *,
    net_arch: Sequence[int] | Mapping[str, Sequence[int]] = (),
    schema: EntitySchema | None = None,
    **encoder: Any,
) -> dict[str, Any]:
    """Return `policy_kwargs` for an algorithm with "MultiInputPolicy".

    Args:
        env: Where the schema comes from, if the environment has one (`entity_schema`).
        net_arch: Hidden layers between encoding and heads, as SB3 reads them; none by default.
        schema: What the observation contains; wins over the environment's.
        **encoder: Arguments of `EntityEncoder`.

    Example:
        PPO("MultiInputPolicy", env, policy_kwargs=policy_kwargs(env, d_model=32))
    """
    found = schema if schema is not None or env is None else schema_of(env)
    arch: Any = dict(net_arch) if isinstance(net_arch, Mapping) else list(net_arch)
    return {
        "features_extractor_class": EntityFeaturesExtractor,
        "features_extractor_kwargs": {**encoder, **({} if found is None else {"schema": found})},
        "net_arch": arch,
    }


def schema_of(env: gymnasium.Env[Any, Any] | VecEnv) -> EntitySchema | None:
    """Return the `entity_schema` of an environment, or None where it has none."""
    try:
        if isinstance(env, VecEnv):
            found = env.get_attr("entity_schema", indices=0)[0]
        else:
            found = env.get_wrapper_attr("entity_schema")
    except AttributeError:
        return None
    assert isinstance(found, EntitySchema)
    return found
