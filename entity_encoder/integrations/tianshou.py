"""Tianshou: actor and critic on one pass of the encoder.

net = EntityNet(space, d_model=64)
algorithm = PPO(
policy=entity_policy(net, action_space),
critic=EntityCritic(net),
optim=AdamOptimizerFactory(lr=1e-3),
)
normalise_between_rollouts(algorithm)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor

from entity_encoder.encoder import EntityEncoder
from entity_encoder.encoding import EntityEncoding
from entity_encoder.heads import make_action_head
from entity_encoder.integrations.extras import missing_library
from entity_encoder.integrations.shared import SharedPass
from entity_encoder.integrations.statistics import (
    ENOUGH_TO_BEGIN,
    never_updated,
    update_statistics,
)
from entity_encoder.integrations.torch_distributions import distribution_class, parameters
from entity_encoder.linear import row_mlp
from entity_encoder.schema import EntitySchema

try:
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.utils.net.common import ActionReprNet, ModuleWithVectorOutput
except ImportError as error:
    raise missing_library(error, "tianshou", extra="tianshou") from error

__all__ = [
    "EntityActor",
    "EntityCritic",
    "EntityNet",
    "entity_policy",
    "normalise_between_rollouts",
    "read",
]


class EntityNet(ModuleWithVectorOutput):
    """The encoder as a preprocessing network, for Tianshou's own actors and critics or for ours.

    While a minibatch is learned from, all actors and critics that were given the same object
    share one pass.

    Args:
        space: Observation space of one environment.
        schema: What the observation contains; default: read from the space.
        **encoder: Arguments of `EntityEncoder`.

    Raises:
        ValueError: For a space that cannot be read, or a mask under the key "mask".
    """

    def __init__(
        self, space: spaces.Space[Any], *, schema: EntitySchema | None = None, **encoder: Any
    ) -> None:
        module = EntityEncoder(space if schema is None else schema, **encoder)
        super().__init__(module.output_dim)
        self.shared = SharedPass(module)
        for group in module.schema.groups:
            if group.mask_key == "mask":
                raise ValueError(
                    f"the mask of {group.name!r} must not have the key 'mask', which Tianshou "
                    f"takes for legal actions; name it '{group.name}_mask'"
                )

    @property
    def encoder(self) -> EntityEncoder:
        """The encoder."""
        return self.shared.encoder

    def encode(self, obs: Any, *, critic: bool = False) -> EntityEncoding:
        """Return the whole encoding of Tianshou's `Batch` of observations."""
        return self.shared(obs, read(obs), critic=critic and self.encoder.schema.has_critic_only)

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:
        """Return the pooled vectors (B, output_dim), and the state as it is."""
        return self.encode(obs).pooled, state


class EntityActor(ActionReprNet):
    """The parameters of a distribution over actions; `entity_policy` puts it into a policy.

    Args:
        net: Network to share.
        action_space: Action space of one environment: Discrete, MultiDiscrete, Box,
            `SelectEntity` or `PerEntity`. Legal actions are read from the observation.
        hidden: Widths of hidden layers.
    """

    def __init__(
        self, net: EntityNet, action_space: spaces.Space[Any], *, hidden: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.net = net
        self.head = make_action_head(action_space, net.encoder, hidden=hidden)

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[Any, Any]:
        """Return logits, or means and standard deviations, and the state as it is."""
        numbers = parameters(self.head(self.net.encode(obs), read(obs)))
        return (numbers[0] if len(numbers) == 1 else numbers), state


class EntityCritic(ModuleWithVectorOutput):
    """The value of observations; sees critic-only groups, with a pass of its own where there are.

    Args:
        net: Network to share.
        hidden: Widths of hidden layers.
    """

    def __init__(self, net: EntityNet, *, hidden: Sequence[int] = ()) -> None:
        super().__init__(1)
        self.net = net
        self.head = row_mlp(net.output_dim, hidden, 1)

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Tensor:
        """Return the values, (B, 1)."""
        value: Tensor = self.head(self.net.encode(obs, critic=True).pooled)
        return value


def read(obs: Any) -> dict[str, Any]:
    """Return the keys of a `Batch`, or of a dict."""
    keys = obs.keys() if isinstance(obs, dict) else obs.get_keys()
    return {key: obs[key] for key in keys}


def entity_policy(
    net: EntityNet,
    action_space: spaces.Space[Any],
    *,
    hidden: Sequence[int] = (),
    deterministic_eval: bool = True,
) -> ProbabilisticActorPolicy:
    """Return a policy for Tianshou's on-policy algorithms.

    Args:
        net: Network to share with the critic.
        action_space: Action space of one environment.
        hidden: Widths of hidden layers of the actor's head.
        deterministic_eval: Whether evaluation takes the likeliest action.

    Raises:
        ValueError: For an action space that cannot be served.
    """
    _, distribution = distribution_class(action_space)
    inner, bounded = action_space, False
    if isinstance(action_space, spaces.Box):
        bounded = bool(np.isfinite([action_space.low, action_space.high]).all())
        if bounded:  # Tianshou clips to [-1, 1] and scales from there
            inner = spaces.Box(-1.0, 1.0, action_space.shape)
    return ProbabilisticActorPolicy(
        actor=EntityActor(net, inner, hidden=hidden),
        dist_fn=partial(_build, distribution),
        action_space=action_space,
        deterministic_eval=deterministic_eval,
        action_scaling=bounded,
        action_bound_method="clip" if bounded else None,
    )


def _build(distribution: Any, numbers: Any) -> Any:
    """Build a distribution from the actor's output; at the top level, so that it can be pickled."""
    return distribution(*numbers) if isinstance(numbers, tuple) else distribution(logits=numbers)


def normalise_between_rollouts(algorithm: Any) -> None:
    """Let the encoder's running normalisation learn from every rollout, after it was learned from.

    Without this call the statistics stay empty and features pass as they are. With it, and with
    16 or more environments, they begin with the first observations.

    Args:
        algorithm: An on-policy algorithm of Tianshou whose networks hold an `EntityNet`.
    """
    update = algorithm.update

    def update_and_see(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(buffer, *args, **kwargs)
        update_statistics(algorithm, read(buffer[buffer.sample_indices(0)].obs))
        return result

    def begin(_: Any, arguments: tuple[Any, ...]) -> None:
        handle.remove()
        obs = arguments[0].obs
        if never_updated(algorithm) and len(obs) >= ENOUGH_TO_BEGIN:
            update_statistics(algorithm, read(obs))

    handle = algorithm.policy.register_forward_pre_hook(begin)
    algorithm.__dict__["update"] = update_and_see
