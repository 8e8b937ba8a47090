"""RLlib's new API stack: a module for PPO, on one machine or a cluster.

config = configure(PPOConfig().environment("Entity/Minefield-v0"), d_model=64)
algorithm = config.build_algo()
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.encoder import EntityEncoder
from entity_encoder.heads import make_action_head
from entity_encoder.integrations.extras import missing_library
from entity_encoder.integrations.statistics import update_statistics
from entity_encoder.integrations.torch_distributions import (
    Categoricals,
    distribution_class,
    parameters,
)
from entity_encoder.linear import row_mlp
from entity_encoder.schema import EntitySchema

try:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.distribution.torch.torch_distribution import (
        TorchCategorical,
        TorchDeterministic,
        TorchDiagGaussian,
        TorchDistribution,
    )
    from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch import TorchRLModule
except ImportError as error:
    raise missing_library(error, "ray", extra="rllib") from error

__all__ = ["EntityLearner", "EntityRLModule", "TorchCategoricals", "configure"]


class EntityRLModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """Actor and critic on one pass of the encoder, for RLlib's PPO.

    `model_config["entity_encoder"]` holds the arguments of `EntityEncoder`, and two more:
    `schema`, an `EntitySchema` or its dict (default: read from the observation space), and
    `hidden`, widths of hidden layers in both heads. RLlib adds keys of its own beside it. Copies
    for inference leave the value head out. Serves Discrete,
    MultiDiscrete, Box, `SelectEntity` and `PerEntity`, with the masks of legal actions that the
    observation holds.
    """

    def setup(self) -> None:
        """Build encoder and heads; RLlib calls it."""
        options = dict((self.model_config or {}).get("entity_encoder", {}))
        schema = options.pop("schema", None)
        hidden = tuple(options.pop("hidden", ()))
        if isinstance(schema, Mapping):
            schema = EntitySchema.from_dict(schema)
        self.encoder = EntityEncoder(schema or self.observation_space, **options)
        distribution_class(self.action_space)  # refuses what RLlib cannot carry
        inner = self.action_space
        if isinstance(inner, spaces.Box) and np.isfinite([inner.low, inner.high]).all():
            inner = spaces.Box(-1.0, 1.0, inner.shape)  # RLlib scales to the bounds
        self.pi = make_action_head(inner, self.encoder, hidden=hidden)
        self.vf = row_mlp(self.encoder.output_dim, hidden, 1)
        if isinstance(self.action_space, spaces.Box):
            self.action_dist_cls = TorchDiagGaussian
        elif isinstance(self.action_space, spaces.MultiDiscrete):
            self.action_dist_cls = TorchCategoricals
        else:
            self.action_dist_cls = TorchCategorical

    def get_non_inference_attributes(self) -> list[str]:
        """Name what is left out of copies that only act."""
        return ["vf"]

    def _forward(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self._act(batch)[1]}

    def _forward_train(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        pooled, inputs = self._act(batch)
        if self.encoder.schema.has_critic_only:
            return {Columns.ACTION_DIST_INPUTS: inputs}
        return {Columns.ACTION_DIST_INPUTS: inputs, Columns.EMBEDDINGS: pooled}

    def _act(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        observation = batch[Columns.OBS]
        encoding = self.encoder(observation)
        numbers = parameters(self.pi(encoding, observation))
        if len(numbers) == 2:  # mean and standard deviation
            return encoding.pooled, torch.cat([numbers[0], numbers[1].log()], dim=-1)
        return encoding.pooled, numbers[0]

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Tensor:
        """Return the values (B,); `embeddings` from `_forward_train` save a pass."""
        if embeddings is None:
            embeddings = self.encoder(batch[Columns.OBS], critic=True).pooled
        values: Tensor = self.vf(embeddings).squeeze(-1)
        return values


class TorchCategoricals(TorchDistribution):
    """Several choices with one log-probability; logits (B, M, K)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        super().__init__(logits=logits)

    def _get_torch_distribution(self, logits: Tensor) -> Categoricals:
        return Categoricals(logits)

    @staticmethod
    def required_input_dim(space: spaces.Space[Any], **_: Any) -> int:
        """Return the number of logits."""
        assert isinstance(space, spaces.MultiDiscrete)
        return int(space.nvec.size * space.nvec.max())

    def to_deterministic(self) -> TorchDeterministic:
        """Return the likeliest choices."""
        return TorchDeterministic(loc=self.logits.argmax(dim=-1))


class EntityLearner(PPOTorchLearner):
    """RLlib's PPO learner, which updates the running normalisation after every update.

    The statistics travel with the weights to whoever acts, so the next rollout is made with them,
    and stay as they are until it has been learned from. Several learners agree on them.
    """

    def build(self) -> None:
        """Build, and keep the observations that pass through the learner's pipeline."""
        super().build()
        self._seen = _KeepObservations()
        self._learner_connector.append(self._seen)

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Let the encoders see what was learned from."""
        super().after_gradient_based_update(timesteps=timesteps)
        for name, (observation, valid) in self._seen.batches.items():
            update_statistics(self.module[name].unwrapped(), observation, valid, together=True)
        self._seen.batches.clear()


class _KeepObservations(ConnectorV2):
    """Remember the observations of a batch, and which of them are real steps."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: dict[str, tuple[Any, Any]] = {}

    def __call__(self, *, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        for name, columns in batch.items():
            self.batches[name] = columns[Columns.OBS], columns.get(Columns.LOSS_MASK)
        return batch


def configure(
    config: PPOConfig,
    *,
    schema: EntitySchema | None = None,
    normalise: bool = True,
    **model: Any,
) -> PPOConfig:
    """Set what PPO needs to learn from entities, and return the configuration.

    Besides the module, three of RLlib's defaults are changed to what the rest of the world calls
    PPO: lambda 0.95 instead of 1, no KL term, and no bound on the squared error of the value.

    Args:
        config: Configuration whose environment is set already.
        schema: What the observation contains; default: the `entity_schema` of a registered
            gymnasium environment, or read from the space.
        normalise: Whether the running normalisation is updated.
        **model: Arguments of `EntityEncoder`, and `hidden`.

    Example:
        configure(PPOConfig().environment("entity_encoder.envs:Entity/Minefield-v0"), d_model=64)
    """
    found = schema or _find_schema(config)
    if found is not None:
        model["schema"] = found.to_dict()
    config.rl_module(
        rl_module_spec=RLModuleSpec(
            module_class=EntityRLModule,
            model_config={"entity_encoder": {**model, "normalise": normalise}},
        )
    )
    config.training(lambda_=0.95, use_kl_loss=False, kl_coeff=0.0, vf_clip_param=math.inf)
    if normalise:
        config.learners(learner_class=EntityLearner)
    return config


def _find_schema(config: PPOConfig) -> EntitySchema | None:
    """Make the environment once and ask it."""
    if not isinstance(config.env, str):
        return None
    try:
        env = gymnasium.make(config.env, **config.env_config)
    except gymnasium.error.Error:  # registered with Ray, or nowhere
        return None
    try:
        schema: EntitySchema = env.get_wrapper_attr("entity_schema")
    except AttributeError:
        return None
    finally:
        env.close()
    return schema
