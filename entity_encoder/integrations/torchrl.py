"""TorchRL: actor and critic as TensorDict modules that share one pass of the encoder.

env = GymWrapper(
    gymnasium.make_vec("Entity/Minefield-v0", 64, autoreset_mode="Disabled"),
    categorical_action_encoding=True,
)
model = EntityActorCritic.for_env(env)
advantage = GAE(gamma=0.99, lmbda=0.95, value_network=model.value)
loss = ClipPPOLoss(model.policy, model.value_head)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder.encoder import EntityEncoder
from entity_encoder.encoding import EntityEncoding
from entity_encoder.heads import make_action_head
from entity_encoder.integrations.extras import missing_library
from entity_encoder.integrations.torch_distributions import distribution_class, parameters
from entity_encoder.linear import row_mlp
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

try:
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives.value import GAE
except ImportError as error:
    raise missing_library(error, "torchrl", extra="torchrl") from error

__all__ = ["EntityActorCritic"]


class EntityActorCritic(nn.Module):
    """The encoder, an actor and a critic, as the modules that TorchRL's losses expect.

    - `policy` reads the observation and writes "action", its log-probability, and the encoding
      under "pooled": for the collector and as the loss's actor.
    - `value_head` reads "pooled" and writes "state_value": as the loss's critic, after `policy`
      has encoded the minibatch. So there is one pass per minibatch.
    - `value` reads the observation: for GAE, whose passes come once per rollout.

    Any leading dimensions. Serves Discrete, MultiDiscrete, Box, `SelectEntity` and `PerEntity`
    with the masks of legal actions that the observation holds. Make the environment with
    `categorical_action_encoding=True`. Groups that only the critic may see cost the critic a pass
    of its own.

    Args:
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        schema: What the observation contains; default: read from the space.
        hidden: Widths of hidden layers in both heads.
        **encoder: Arguments of `EntityEncoder`.

    Raises:
        ValueError: For spaces that cannot be served.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        schema: EntitySchema | None = None,
        hidden: Sequence[int] = (),
        **encoder: Any,
    ) -> None:
        super().__init__()
        self.encoder = EntityEncoder(observation_space if schema is None else schema, **encoder)
        self.schema = self.encoder.schema
        head = make_action_head(action_space, self.encoder, hidden=hidden)
        pointing = isinstance(action_space, SelectEntity | PerEntity)
        self.keys = [group.name for group in self.schema.groups]
        self.keys += [group.mask_key for group in self.schema.groups if group.mask_key is not None]
        self.keys += [item.name for item in self.schema.globals]
        encoded = ["pooled", "entities", "entity_mask"] if pointing else ["pooled"]
        encode = TensorDictModule(
            _Encode(self.encoder, self.keys, whole=pointing), in_keys=self.keys, out_keys=encoded
        )
        masks = list(self.schema.action_masks)
        names, distribution = distribution_class(action_space)
        act = TensorDictModule(
            _Act(head, self.schema, encoded, masks), in_keys=encoded + masks, out_keys=names
        )
        self.policy = ProbabilisticActor(
            TensorDictSequential(encode, act),
            in_keys=names,
            distribution_class=distribution,
            return_log_prob=True,
        )
        # Rollouts shall not store encodings, which learning computes anew.
        self.policy.select_out_keys("action", *self.policy.log_prob_keys)
        value = ValueOperator(row_mlp(self.encoder.output_dim, hidden, 1), in_keys=["pooled"])
        self.value = TensorDictSequential(encode, value)
        self.value_head: nn.Module = value
        if self.schema.has_critic_only:
            see_all = TensorDictModule(
                _Encode(self.encoder, self.keys, whole=False, critic=True),
                in_keys=self.keys,
                out_keys=["critic_pooled"],
            )
            value = ValueOperator(value.module, in_keys=["critic_pooled"])
            self.value = self.value_head = TensorDictSequential(see_all, value)

    @classmethod
    def for_env(cls, env: Any, **options: Any) -> EntityActorCritic:
        """Build for a GymWrapper or GymEnv (or a transform of one), with the env's schema."""
        while not hasattr(env, "_env"):
            env = env.base_env
        inner = env._env
        single = "single_" if hasattr(inner, "single_observation_space") else ""
        options.setdefault("schema", _schema_of(inner))
        spaces_ = [getattr(inner, f"{single}{kind}_space") for kind in ("observation", "action")]
        return cls(*spaces_, **options)

    def gae(self, *, gamma: float = 0.99, lmbda: float = 0.95, **options: Any) -> GAE:
        """Return TorchRL's advantage estimator with the whole critic.

        It values every observation of a rollout and the one after it: two passes per rollout,
        whatever the number of epochs.
        """
        return GAE(
            gamma=gamma, lmbda=lmbda, value_network=self.value, deactivate_vmap=True, **options
        )

    def update_statistics(self, data: TensorDictBase | Mapping[str, Tensor]) -> None:
        """Let the running normalisation see a rollout; call it after learning from the rollout.

        Never between collecting and the last gradient step: the policy that learns would not be
        the policy that acted.
        """
        self.encoder.update_statistics({key: data[key] for key in self.keys})


def _schema_of(env: Any) -> EntitySchema | None:
    """Return the `entity_schema` of a gymnasium environment, through its wrappers."""
    read = getattr(env, "get_wrapper_attr", lambda name: getattr(env, name))
    try:
        schema: EntitySchema = read("entity_schema")
    except AttributeError:
        return None
    return schema


class _Encode(nn.Module):
    """Positional tensors in the order of `keys` to the pooled vector, or the whole encoding."""

    def __init__(
        self, encoder: EntityEncoder, keys: list[str], *, whole: bool, critic: bool = False
    ) -> None:
        super().__init__()
        self.encoder, self.keys, self.whole, self.critic = encoder, keys, whole, critic

    def forward(self, *values: Tensor) -> Any:
        if any(torch._C._functorch.is_batchedtensor(value) for value in values):
            raise ValueError(
                "value estimators must not run the encoder under vmap, which cannot read masks; "
                "use EntityActorCritic.gae(), or pass deactivate_vmap=True"
            )
        encoding = self.encoder(dict(zip(self.keys, values, strict=True)), critic=self.critic)
        if self.whole:
            return encoding.pooled, encoding.entities, encoding.mask
        return encoding.pooled


class _Act(nn.Module):
    """An encoding and action masks to the parameters of the distribution."""

    def __init__(
        self, head: nn.Module, schema: EntitySchema, encoded: list[str], masks: list[str]
    ) -> None:
        super().__init__()
        self.head, self.schema, self.encoded, self.masks = head, schema, encoded, masks

    def forward(self, *values: Tensor) -> Any:
        cut = len(self.encoded)
        pooled, *rest = values[:cut]
        encoding = _Encoded(pooled, rest, self.schema)
        distribution = self.head(encoding, dict(zip(self.masks, values[cut:], strict=True)))
        return parameters(distribution)


class _Encoded(EntityEncoding):
    """An encoding that was carried as tensors."""

    def __init__(self, pooled: Tensor, rest: Sequence[Tensor], schema: EntitySchema) -> None:
        nothing = pooled.new_zeros(0, dtype=torch.bool)
        mask = rest[1] if rest else nothing
        super().__init__(pooled, mask, layouts=(), rows=(), slices=schema.slices)
        if rest:
            self._entities = rest[0]
