"""The one place where the failure cases, which know no library, meet this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entity_encoder import EntityEncoder, EntityGroup, EntitySchema, pool
from entity_encoder.agents import PPO, EntityPolicy, Environments, PPOConfig, gae
from entity_encoder.agents import normalise_advantages as normalise
from entity_encoder.agents.checkpoint import load_state, save_state
from entity_encoder.agents.collect import Collector, count_entities
from entity_encoder.agents.episodes import EpisodeLog
from entity_encoder.agents.losses import approx_kl, clipped_surrogate
from entity_encoder.agents.monitor import Monitor
from entity_encoder.agents.rollout import Rollout
from entity_encoder.distributions import MaskedCategorical
from entity_encoder.normalisation import RunningNorm

POOLING = {"cls": "class"}
NUM_ENVS = 5
ROLLOUT_STEPS = 9


def encoder(
    feat: int,
    pool: str = "mean",
    types: int = 0,
    dropout: float = 0.0,
    seed: int = 0,
    max_n: int | None = None,
) -> EntityEncoder:
    """Build an encoder for `entities` (B, N, feat) and, with types, `type_id` (B, N)."""
    columns = tuple(f"f{i}" for i in range(feat)) + (("type",) if types else ())
    group = EntityGroup(
        "entities",
        max_n or 7,
        columns,
        mask_key="mask",
        categories=(("type", types),) if types else (),
    )
    torch.manual_seed(seed)
    return EntityEncoder(
        EntitySchema((group,)), d_model=32, pooling=POOLING.get(pool, pool), dropout=dropout
    )


def run(
    enc: EntityEncoder, obs: dict[str, Any], mode: str = "train", grad: bool = True
) -> tuple[Tensor, Tensor]:
    """Encode: features (B, D) and entities (B, N, D)."""
    enc.train(mode == "train")
    obs = dict(obs)
    if "type_id" in obs:
        ids = np.asarray(obs.pop("type_id"), np.float32)[..., None]
        obs["entities"] = np.concatenate([obs["entities"], ids], axis=-1)
    with torch.set_grad_enabled(grad):
        encoding = enc(obs)
        return encoding.pooled, encoding.entities


def params(enc: EntityEncoder) -> Iterable[torch.nn.Parameter]:
    """Return the parameters."""
    return list(enc.parameters())


def advantages(
    r: Any,
    v: Any,
    terminated: Any,
    truncated: Any,
    next_v: Any,
    gamma: float,
    lam: float,
    valid: Any = None,
) -> np.ndarray:
    """Estimate advantages of (T, E) arrays."""
    t = torch.as_tensor
    return gae(
        t(r),
        t(v),
        t(next_v),
        t(terminated),
        t(truncated),
        gamma=gamma,
        gae_lambda=lam,
        valid=None if valid is None else t(valid),
    ).numpy()


def normalise_adv(adv: np.ndarray, valid: Any = None) -> np.ndarray:
    """Normalise the valid advantages."""
    x = torch.as_tensor(adv)
    return normalise(x if valid is None else x[torch.as_tensor(valid)]).numpy()


def rollout(vector_env: Any, steps: int) -> tuple[Rollout, Environments]:
    """Roll out a fresh policy."""
    envs = Environments(vector_env)
    torch.manual_seed(0)
    policy = EntityPolicy(envs.schema, envs.action_space, d_model=8, n_heads=2, n_layers=1)
    envs.reset(seed=3)
    collector = Collector(policy, envs, steps, torch.Generator().manual_seed(5))
    return collector.collect(), envs


def collect(vector_env: Any, steps: int) -> dict[str, np.ndarray]:
    """Roll out and return (T, E) arrays; observations of `toys.Counter`."""
    done, envs = rollout(vector_env, steps)
    seen = done.observation["entities"][..., 0, 0].numpy()  # (T, E)
    following = np.concatenate([seen[1:], envs.observation["entities"][None, :, 0, 0].numpy()])
    index, final, _ = done.finals()
    counts = final["entities"][:, 0, 0].tolist()
    for row, value in list(zip(index.tolist(), counts, strict=True))[envs.num_envs :]:
        following[divmod(row, envs.num_envs)] = value
    return {
        "valid": done.valid.numpy().astype(int),
        "reward": done.reward.numpy(),
        "obs_t": seen,
        "next_obs_t": following,
        "term": done.terminated.numpy(),
        "trunc": done.truncated.numpy(),
    }


def episode_log(vector_env: Any, steps: int) -> list[tuple[int, float]]:
    """Roll out and return (length, return) of every finished episode."""
    done, envs = rollout(vector_env, steps)
    log = EpisodeLog(envs.num_envs)
    episodes = log.update(done, count_entities(envs.schema, done.observation))
    return [(episode.length, episode.total) for episode in episodes]


def train(
    env_factory: Callable[[], Any],
    updates: int,
    seed: int,
    lr: float = 3e-4,
    logger: str | Path | None = None,
    resume: str | Path | None = None,
    save: str | Path | None = None,
    minibatch: int | None = None,
    vector: str = "sync",
    **settings: Any,
) -> dict[str, Any]:
    """Train a small policy; schedules are constant, so that every number of updates is a prefix."""
    size = NUM_ENVS * ROLLOUT_STEPS
    config: dict[str, Any] = {
        "total_steps": updates * size,
        "seed": seed,
        "learning_rate": lr,
        "minibatch_size": None if minibatch is None else min(minibatch, size),
        "workers": 2 if vector == "async" else 0,
    }
    fixed: dict[str, Any] = {
        "num_envs": NUM_ENVS,
        "rollout_steps": ROLLOUT_STEPS,
        "epochs": 2,
        "learning_rate_schedule": "constant",
        "entropy_schedule": "constant",
        "d_model": 8,
        "n_heads": 2,
        "n_layers": 1,
        "threads": 1,
    }
    ratios: list[float] = []
    watch = [lambda _, metrics: ratios.append(metrics["policy/log_ratio_max"])]
    made = [env_factory] * NUM_ENVS
    common: dict[str, Any] = {"callbacks": watch, "progress": False}
    if resume is None:
        settings = {**fixed, **config, **settings}
        agent = PPO(made, PPOConfig(**settings), run_dir=logger, **common)
    else:
        agent = PPO.load(resume, made, run_dir=logger, **common, **config, **settings)
    try:
        agent.learn()
        if save is not None:
            agent.save(save)
    finally:
        agent.envs.close()
    return {
        "params": {k: v.detach().clone() for k, v in agent.policy.named_parameters()},
        "log_ratio_absmax": ratios,
        "steps": agent.steps,
        "agent": agent,
    }


class Statistics:
    """Running statistics that show their moments as arrays."""

    def __init__(self, dim: int) -> None:
        self.norm = RunningNorm(dim)
        self.update = self.norm.update

    @property
    def mean(self) -> np.ndarray:
        """Mean of each column."""
        return self.norm.mean.numpy()

    @property
    def var(self) -> np.ndarray:
        """Population variance of each column."""
        return self.norm.var.numpy()

    def __call__(self, x: Any, mask: Any) -> Tensor:
        """Normalise."""
        out: Tensor = self.norm(x, mask)
        return out


class Adapter:
    """The methods that the checks call."""

    encoder = staticmethod(encoder)
    run = staticmethod(run)
    params = staticmethod(params)
    gae = staticmethod(advantages)
    normalise_adv = staticmethod(normalise_adv)
    collect = staticmethod(collect)
    episode_log = staticmethod(episode_log)
    train = staticmethod(train)

    @staticmethod
    def pool(x: Tensor, mask: Tensor, kind: str) -> Tensor:
        """Reduce (B, N, D) to (B, D)."""
        return pool(x, mask, kind)

    @staticmethod
    def dist(logits: Tensor, mask: Tensor) -> MaskedCategorical:
        """Return a masked categorical distribution."""
        return MaskedCategorical(logits, mask)

    @staticmethod
    def surrogate(log_ratio: Tensor, adv: Tensor, clip: float) -> Tensor:
        """Return the policy loss of each sample."""
        return clipped_surrogate(log_ratio, adv, clip)

    @staticmethod
    def approx_kl(log_ratio: Tensor) -> float:
        """Return the mean of the k3 estimator."""
        return float(approx_kl(log_ratio).mean())

    @staticmethod
    def norm_stats(dim: int) -> Statistics:
        """Return running statistics."""
        return Statistics(dim)

    @staticmethod
    def save(path: str | Path, obj: Any) -> None:
        """Write with the checkpoint's own function."""
        save_state(path, obj)

    @staticmethod
    def load(path: str | Path) -> Any:
        """Read with the checkpoint's own function."""
        return load_state(path)

    @staticmethod
    def logger(path: str | Path, resume_step: int | None = None) -> Monitor:
        """Return a TensorBoard logger."""
        return Monitor(path, resume_step=resume_step)


A = Adapter()
