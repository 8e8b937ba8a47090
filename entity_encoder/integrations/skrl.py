"""skrl: one model that is both policy and value, and environments as skrl wants them.

env = wrap_env(gymnasium.make_vec("Entity/Minefield-v0", 64, autoreset_mode="SameStep"))
model = EntityModel.for_env(env)
agent = PPO(models={"policy": model, "value": model}, memory=..., ...)
normalise_between_rollouts(agent)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from torch import Tensor

from entity_encoder.distributions import ActionDistribution, DiagonalGaussian
from entity_encoder.encoder import EntityEncoder
from entity_encoder.heads import make_action_head
from entity_encoder.integrations.extras import missing_library
from entity_encoder.integrations.shared import SharedPass
from entity_encoder.integrations.statistics import (
    ENOUGH_TO_BEGIN,
    never_updated,
    update_statistics,
)
from entity_encoder.linear import row_mlp
from entity_encoder.schema import EntitySchema

try:
    from skrl.agents.torch import Agent
    from skrl.envs.wrappers.torch import wrap_env as skrl_wrap_env
    from skrl.models.torch import Model
    from skrl.utils.spaces.torch import unflatten_tensorized_space
except ImportError as error:
    raise missing_library(error, "skrl", extra="skrl") from error

__all__ = ["EntityModel", "normalise_between_rollouts", "wrap_env"]


class EntityModel(Model):
    """Policy and value of an on-policy agent on one pass of the encoder.

    Serves Discrete, MultiDiscrete, Box, `SelectEntity` and `PerEntity` actions, with the masks of
    legal actions that the observation holds. skrl hands over one flat vector per environment;
    it is cut into the keys of the observation again. Pass the same object as "policy" and
    "value": the encoding of a minibatch is computed by the first and shared with the second.

    Args:
        observation_space: Observation space of one environment, masks as Box.
        action_space: Action space of one environment.
        schema: What the observation contains; default: read from the space.
        hidden: Widths of hidden layers in both heads.
        device: As for skrl's Model.
        **encoder: Arguments of `EntityEncoder`.

    Raises:
        ValueError: For spaces that cannot be served, MultiBinary masks included: skrl cannot
            carry them, `wrap_env` declares them as Box.
    """

    def __init__(
        self,
        *,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        schema: EntitySchema | None = None,
        hidden: Sequence[int] = (),
        device: str | torch.device | None = None,
        **encoder: Any,
    ) -> None:
        _check_space(observation_space)
        super().__init__(
            observation_space=observation_space, action_space=action_space, device=device
        )
        module = EntityEncoder(observation_space if schema is None else schema, **encoder)
        self.shared = SharedPass(module)
        self.action_head = make_action_head(action_space, module, hidden=hidden)
        self.value_head = row_mlp(module.output_dim, hidden, 1)
        self._distribution: ActionDistribution | None = None

    @classmethod
    def for_env(cls, env: Any, **options: Any) -> EntityModel:
        """Build the model for an environment from `wrap_env`, with the environment's schema."""
        options.setdefault("schema", getattr(env, "entity_schema", None))
        return cls(
            observation_space=env.observation_space,
            action_space=env.action_space,
            device=env.device,
            **options,
        )

    @property
    def encoder(self) -> EntityEncoder:
        """The encoder."""
        return self.shared.encoder

    def read(self, observations: Tensor) -> dict[str, Tensor]:
        """Cut skrl's flat vectors (..., size) into the keys of the observation."""
        lead = observations.shape[:-1]
        parts = unflatten_tensorized_space(
            self.observation_space, observations.reshape(-1, observations.shape[-1])
        )
        return {key: part.reshape(*lead, *part.shape[1:]) for key, part in parts.items()}

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Any, dict[str, Any]]:
        """Return the value (B, 1) for role "value", else the distribution over actions."""
        source = inputs["observations"]
        observation = self.read(source)
        critic = role == "value" and self.encoder.schema.has_critic_only
        encoding = self.shared(source, observation, critic=critic)
        if role == "value":
            return self.value_head(encoding.pooled), {}
        return self.action_head(encoding, observation), {}

    def act(self, inputs: dict[str, Any], *, role: str = "") -> tuple[Tensor, dict[str, Any]]:
        """Return the value, or an action with its log-probability, or that of `taken_actions`."""
        output, outputs = self.compute(inputs, role)
        if role == "value":
            return output, outputs
        self._distribution = output
        taken = inputs.get("taken_actions")
        actions = output.sample() if taken is None else self._shaped(taken)
        rows = len(inputs["observations"])
        outputs["log_prob"] = output.log_prob(actions)[:, None]
        outputs["mean_actions"] = output.mode().reshape(rows, -1)  # what evaluation takes
        return actions.reshape(rows, -1), outputs

    def get_entropy(self, *, role: str = "") -> Tensor:
        """Return the entropy of the last distribution, (B, 1)."""
        assert self._distribution is not None, "the model has not acted yet"
        return self._distribution.entropy()[:, None]

    def distribution(self, *, role: str = "") -> Any:
        """Return an object whose `stddev` skrl records: NaN where there is no such thing."""
        return _Spread(self._distribution)

    def _shaped(self, actions: Tensor) -> Tensor:
        assert self.action_space is not None
        assert self.action_space.shape is not None
        return actions.reshape(len(actions), *self.action_space.shape)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last distribution behind in copies: its graph cannot be copied."""
        return {**self.__dict__, "_distribution": None}


class _Spread:
    """The standard deviation of a distribution, under the name skrl asks for."""

    def __init__(self, distribution: ActionDistribution | None) -> None:
        self.stddev = torch.tensor(torch.nan)
        if isinstance(distribution, DiagonalGaussian):
            self.stddev = distribution.std


def normalise_between_rollouts(agent: Agent) -> None:
    """Let the encoder's running normalisation learn from every rollout, after it was learned from.

    Without this call the statistics stay empty and features pass as they are. With it, and with
    16 or more environments, they begin with the first observations. For PPO, A2C and their like,
    whose memory holds one rollout; skrl's own `RunningStandardScaler` would normalise masks too,
    and change while the first epoch learns.

    Args:
        agent: Agent whose models are `EntityModel`.
    """
    models = {id(model): model for model in agent.models.values() if isinstance(model, EntityModel)}

    def see(observations: Tensor) -> None:
        for model in models.values():
            update_statistics(model, model.read(observations))

    act, update = agent.act, agent.update
    begun = False

    def act_and_begin(observations: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal begun
        if agent.training and not begun:
            begun = True
            fresh = all(never_updated(model) for model in models.values())
            if fresh and len(observations) >= ENOUGH_TO_BEGIN:
                see(observations)
        return act(observations, *args, **kwargs)

    def update_and_see(*args: Any, **kwargs: Any) -> None:
        update(*args, **kwargs)
        see(agent.memory.get_tensor_by_name("observations"))  # (T, E, size)

    vars(agent).update(act=act_and_begin, update=update_and_see)


def wrap_env(envs: VectorEnv[Any, Any, Any]) -> Any:
    """Wrap environments for skrl: masks as Box, actions clipped into their bounds.

    Args:
        envs: Environments in autoreset mode SAME_STEP. skrl would learn from the steps that
            NEXT_STEP spends on resets, and asks for no reset where that is disabled.

    Returns:
        What `skrl.envs.wrappers.torch.wrap_env` returns.

    Raises:
        ValueError: For another autoreset mode.
    """
    mode = envs.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            f"autoreset mode must be {AutoresetMode.SAME_STEP}, got {mode}: skrl takes every step "
            'for part of an episode; make the environments with autoreset_mode="SameStep"'
        )
    return skrl_wrap_env(_Bridge(envs), wrapper="gymnasium", verbose=False)


class _Bridge(VectorWrapper):
    """Declare masks as Box and clip actions."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(envs)
        self.single_observation_space = _masks_as_box(envs.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, envs.num_envs)

    def step(self, actions: Any) -> Any:
        space = self.env.single_action_space
        if isinstance(space, spaces.Box):
            actions = np.clip(actions, space.low, space.high)
        return self.env.step(actions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def _masks_as_box(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    assert isinstance(space, spaces.Dict)
    return spaces.Dict(
        {
            key: spaces.Box(0.0, 1.0, part.shape) if isinstance(part, spaces.MultiBinary) else part
            for key, part in space.spaces.items()
        }
    )


def _check_space(space: spaces.Space[Any]) -> None:
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    for key, part in parts.items():
        if isinstance(part, spaces.MultiBinary):
            raise ValueError(
                f"mask {key!r} must be declared as Box(0, 1, {part.shape}) for skrl, got {part}; "
                "wrap the environment in entity_encoder.integrations.skrl.wrap_env"
            )
