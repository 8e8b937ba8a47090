"""Every setting of a training run, with its default and its meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entity_encoder.agents.schedules import SCHEDULES
from entity_encoder.errors import choose, nearest

__all__ = ["PPOConfig"]


def _setting(default: Any, description: str, choices: Sequence[str] | None = None) -> Any:
    """Declare a field with the text that `--help` shows."""
    return field(default=default, metadata={"help": description, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of `PPO`; one configuration for all tasks, deviations stand in `presets`.

    Each field's meaning is in its metadata: `entity-encoder train --help` prints them all. The
    object is immutable, `dataclasses.replace` makes a changed one.

    Raises:
        ValueError: For a value that cannot work, naming the field, the rule and the value.
    """

    # --- the run ------------------------------------------------------------------------------
    total_steps: int = _setting(1_000_000, "environment steps to learn from in the whole run")
    seed: int = _setting(1, "seed of weights, actions, shuffling and environments")
    device: str = _setting("auto", "where the policy learns: auto, cpu, cuda, cuda:1, ...")
    threads: int = _setting(0, "chunks that a CPU computes at once; 0 chooses and says why")
    checkpoint_every: int = _setting(
        10, "iterations between checkpoints; 0 writes one only at the end"
    )
    keep_best: bool = _setting(
        True, "also keep the checkpoint with the best mean return, in <run_dir>/best"
    )
    target_return: float | None = _setting(
        None, "stop when the mean return of the last 100 episodes reaches this"
    )
    target_score: float | None = _setting(
        None, "stop when their mean score (0 = random, 1 = scripted reference) reaches this"
    )

    # --- the rollout --------------------------------------------------------------------------
    num_envs: int = _setting(64, "environments that are stepped together")
    rollout_steps: int = _setting(64, "steps of every environment between two updates")
    workers: int = _setting(
        0, "processes that share the environments, for slow ones; 0 = this process alone"
    )
    overlap: bool = _setting(
        False, "with workers: choose actions for one half of the environments while the other steps"
    )
    gamma: float = _setting(0.99, "discount per step")
    gae_lambda: float = _setting(0.95, "0 = one-step advantages, 1 = whole returns")
    normalise_rewards: bool = _setting(
        True, "divide rewards by the running standard deviation of discounted returns"
    )

    # --- the update ---------------------------------------------------------------------------
    epochs: int = _setting(4, "passes over a rollout")
    minibatch_size: int | None = _setting(
        None, "samples behind one gradient step, at most; none = a sixteenth of a rollout"
    )
    learning_rate: float = _setting(2e-3, "step size of Adam at the beginning")
    learning_rate_schedule: str = _setting("linear", "how it falls over the run", SCHEDULES)
    adam_epsilon: float = _setting(1e-5, "epsilon of Adam")
    clip_range: float = _setting(0.2, "eps of the clipped surrogate")
    clip_range_schedule: str = _setting("constant", "how eps falls over the run", SCHEDULES)
    value_clip_range: float | None = _setting(
        0.2, "clip the value's change per update to this; none leaves it alone"
    )
    value_coefficient: float = _setting(0.5, "weight of the value loss")
    entropy_coefficient: float = _setting(0.01, "weight of the entropy bonus")
    entropy_schedule: str = _setting("linear", "how it falls over the run", SCHEDULES)
    max_grad_norm: float = _setting(0.5, "gradients longer than this are scaled down to it")
    normalise_advantages: bool = _setting(True, "per minibatch: mean 0, standard deviation 1")
    target_kl: float | None = _setting(
        0.25, "end an update after the epoch whose mean KL (k3) exceeds this; none never does"
    )
    chunk_entities: int = _setting(
        4096, "on a CPU, entities per chunk of a minibatch, so that activations stay in its caches"
    )

    # --- the policy ---------------------------------------------------------------------------
    d_model: int = _setting(32, "width of an encoded entity")
    n_heads: int = _setting(2, "attention heads per layer")
    n_layers: int = _setting(2, "transformer layers")
    d_ff: int | None = _setting(None, "hidden width of their MLPs; none = 2 * d_model")
    norm: str = _setting("pre", "where layers normalise", ("pre", "post"))
    activation: str = _setting("relu", "relu, gelu, silu, tanh, elu or leaky_relu")
    pooling: str = _setting("mean", "set to vector: mean, max, sum, attention, class or ego")
    core: str = _setting(
        "attention", "how entities interact: attention, induced, latent, ego, pool"
    )
    count_feature: bool = _setting(
        True, "tell the policy how many entities of each group there are"
    )
    position_encoding: str = _setting(
        "auto",
        "relative positions in attention; auto: rotary where the schema declares a grid",
        ("auto", "none", "rotary", "bias"),
    )
    position_scale: float | None = _setting(
        None, "length that counts as 1 for position_encoding; none = the grid's, or 1"
    )
    normalise_observations: bool = _setting(True, "running, mask-aware normalisation of features")
    attention: str = _setting("auto", "auto, groups, fast, padded, varlen or dense")
    dropout: float = _setting(0.0, "must be 0: rollout and update compute one function")
    hidden: tuple[int, ...] = _setting((), "widths of hidden layers in the heads")
    squash: bool = _setting(False, "squash Box actions into their bounds by tanh, not clip them")
    separate_critic: bool = _setting(False, "give the value function an encoder of its own")
    recurrent: int = _setting(0, "width of a GRU after pooling, for memory; 0 = none")

    # --- speed on CUDA ------------------------------------------------------------------------
    bfloat16: bool = _setting(False, "compute in bfloat16 where possible; CUDA only")
    compile: bool = _setting(False, "torch.compile the policy; CUDA only")
    cuda_graphs: bool = _setting(
        False, "replay rollout steps and updates as CUDA graphs; CUDA only"
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is built."""
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            self._require(name, value is None or value >= 1, "be at least 1")
        for name in _NOT_NEGATIVE:
            self._require(name, getattr(self, name) >= 0, "not be negative")
        for name in _POSITIVE:
            self._require(name, getattr(self, name) > 0, "be positive")
        for name in ("gamma", "gae_lambda"):
            self._require(name, 0 <= getattr(self, name) <= 1, "be in [0, 1]")
        for name in ("value_clip_range", "target_kl", "position_scale"):
            value = getattr(self, name)
            self._require(name, value is None or value > 0, "be positive or None")
        for name in ("learning_rate_schedule", "clip_range_schedule", "entropy_schedule"):
            choose(name, getattr(self, name), SCHEDULES)
        if self.dropout:
            raise ValueError(
                f"dropout must be 0 for PPO, got {self.dropout}: the update would compare a policy "
                "with dropout to the one that acted without, and clip half of all samples"
            )
        if self.workers > self.num_envs:
            raise ValueError(
                f"workers must be at most num_envs={self.num_envs}, got {self.workers}"
            )
        if self.overlap and self.workers < 2:
            raise ValueError(f"overlap must go with at least 2 workers, got {self.workers}")
        self._check_sizes()

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ValueError(f"{name} must {rule}, got {getattr(self, name)}")

    def _check_sizes(self) -> None:
        product = f"num_envs * rollout_steps = {self.num_envs} * {self.rollout_steps}"
        if self.total_steps < self.rollout_size:
            raise ValueError(
                f"total_steps must be at least one rollout, {product} = {self.rollout_size}, got "
                f"{self.total_steps}; there would be no update"
            )
        if self.samples_per_minibatch > self.rollout_size:
            raise ValueError(
                f"minibatch_size must be at most one rollout, {product} = {self.rollout_size}, "
                f"got {self.minibatch_size}"
            )

    @property
    def rollout_size(self) -> int:
        """Rows of one rollout: environments times steps."""
        return self.num_envs * self.rollout_steps

    @property
    def samples_per_minibatch(self) -> int:
        """`minibatch_size`, or a sixteenth of a rollout."""
        return -(-self.rollout_size // 16) if self.minibatch_size is None else self.minibatch_size

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for `json.dumps`."""
        content = dataclasses.asdict(self)
        content["hidden"] = list(self.hidden)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PPOConfig:
        """Rebuild from `to_dict`'s result.

        Raises:
            ValueError: For a setting that does not exist, with the nearest one.
        """
        names = [item.name for item in dataclasses.fields(cls)]
        for key in content:
            if key not in names:
                raise ValueError(f"{key!r} must be a setting of PPOConfig{nearest(key, names)}")
        return cls(**content)


_AT_LEAST_ONE = (
    "total_steps",
    "num_envs",
    "rollout_steps",
    "epochs",
    "minibatch_size",
    "chunk_entities",
)
_NOT_NEGATIVE = (
    "seed",
    "threads",
    "checkpoint_every",
    "workers",
    "learning_rate",
    "value_coefficient",
    "entropy_coefficient",
    "recurrent",
)
_POSITIVE = ("adam_epsilon", "clip_range", "max_grad_norm")
