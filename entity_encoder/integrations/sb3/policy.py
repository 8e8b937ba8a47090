"""A policy for PPO and A2C that can also point at entities."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from entity_encoder.distributions import ActionDistribution
from entity_encoder.encoder import EntityEncoder
from entity_encoder.heads import make_action_head
from entity_encoder.integrations.sb3.extractor import EntityFeaturesExtractor, restore_masks
from entity_encoder.linear import row_mlp

__all__ = ["EntityPolicy"]


class EntityPolicy(ActorCriticPolicy):
    """Actor and critic on one pass of the encoder, for every action space the heads know.

    `SelectEntity` points at an entity, `PerEntity` lets every entity choose, neither with a weight
    that depends on the number of slots. Legal actions are read from `action_mask` in the
    observation, so PPO needs no MaskablePPO. Groups that only the critic may see cost the critic
    a pass of its own.

        PPO(EntityPolicy, env, policy_kwargs=policy_kwargs(env))

    Args:
        observation_space: Given by SB3.
        action_space: Given by SB3.
        lr_schedule: Given by SB3.
        net_arch: Hidden layers of the heads, a list for both or `{"pi": [...], "vf": [...]}`.
        features_extractor_class: `EntityFeaturesExtractor` or a subclass.
        **options: Further arguments of SB3's ActorCriticPolicy.

    Raises:
        ValueError: For another extractor, for state-dependent exploration, for an action space
            that cannot be served.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        net_arch: list[int] | dict[str, list[int]] | None = None,
        *,
        features_extractor_class: type[EntityFeaturesExtractor] = EntityFeaturesExtractor,
        use_sde: bool = False,
        **options: Any,
    ) -> None:
        if not issubclass(features_extractor_class, EntityFeaturesExtractor):
            raise ValueError(
                "features_extractor_class must be EntityFeaturesExtractor or a subclass, got "
                f"{features_extractor_class.__name__}"
            )
        if use_sde:
            raise ValueError("use_sde must be False, got True: the heads have noise of their own")
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            [] if net_arch is None else net_arch,
            features_extractor_class=features_extractor_class,
            **options,
        )

    def _build(self, lr_schedule: Schedule) -> None:
        arch = self.net_arch
        hidden = arch if isinstance(arch, dict) else {"pi": arch, "vf": arch}
        self.action_net = make_action_head(
            self.action_space, self._encoders[0], hidden=hidden.get("pi", [])
        )
        value_net: Any = row_mlp(self.features_dim, hidden.get("vf", []), 1)
        self.value_net = value_net
        optimizer: Any = self.optimizer_class
        self.optimizer = optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    @property
    def _encoders(self) -> tuple[EntityEncoder, EntityEncoder]:
        """The actor's encoder and the critic's, which may be the same."""
        actor, critic = self.pi_features_extractor, self.vf_features_extractor
        assert isinstance(actor, EntityFeaturesExtractor)
        assert isinstance(critic, EntityFeaturesExtractor)
        return actor.encoder, critic.encoder

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Choose actions: returns them with values (B, 1) and log-probabilities (B,)."""
        distribution, values = self._both(obs)
        actions = distribution.mode() if deterministic else distribution.sample()
        return actions, values, distribution.log_prob(actions)

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values (B, 1), log-probabilities (B,) and entropies (B,)."""
        distribution, values = self._both(obs)
        return values, distribution.log_prob(actions), distribution.entropy()

    def get_distribution(self, obs: Any) -> Distribution:
        """Return the distribution over actions."""
        obs = self._restore(obs)
        return _EntityDistribution(self.action_net(self._encoders[0](obs), obs))

    def predict_values(self, obs: Any) -> Tensor:
        """Return the values alone, (B, 1)."""
        return self.value_net(self._encoders[1](self._restore(obs), critic=True).pooled)

    def _both(self, obs: Any) -> tuple[ActionDistribution, Tensor]:
        obs = self._restore(obs)
        actor, critic = self._encoders
        encoding = actor(obs)
        pooled = encoding.pooled
        if critic is not actor or actor.schema.has_critic_only:
            pooled = critic(obs, critic=True).pooled
        return self.action_net(encoding, obs), self.value_net(pooled)

    def _restore(self, obs: Any) -> dict[str, Tensor]:
        return restore_masks(self._encoders[0].schema, obs)


class _EntityDistribution(Distribution):
    """One of our distributions behind the methods that SB3 calls."""

    distribution: Any

    def __init__(self, distribution: ActionDistribution) -> None:
        super().__init__()
        self.distribution = distribution

    def proba_distribution_net(self, *args: Any, **kwargs: Any) -> nn.Module:
        raise TypeError("an entity distribution is made by its head, not from a latent vector")

    def proba_distribution(self, distribution: ActionDistribution) -> _EntityDistribution:
        self.distribution = distribution
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        log_prob: Tensor = self.distribution.log_prob(actions)
        return log_prob

    def entropy(self) -> Tensor:
        entropy: Tensor = self.distribution.entropy()
        return entropy

    def sample(self) -> Tensor:
        action: Tensor = self.distribution.sample()
        return action

    def mode(self) -> Tensor:
        action: Tensor = self.distribution.mode()
        return action

    def actions_from_params(
        self, distribution: ActionDistribution, deterministic: bool = False
    ) -> Tensor:
        return self.proba_distribution(distribution).get_actions(deterministic)

    def log_prob_from_params(self, distribution: ActionDistribution) -> tuple[Tensor, Tensor]:
        action = self.actions_from_params(distribution)
        return action, self.log_prob(action)
