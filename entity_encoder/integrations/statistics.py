"""Running normalisation inside other libraries: when its statistics may change.

The encoder's statistics are buffers that `forward` never changes. Between collecting a rollout and
the end of learning from it they must stay as they are, otherwise the policy that learns is not the
policy that acted and PPO's first ratio is not 1. So every integration updates them at one moment:
after the last gradient step on a rollout, before the first step of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from entity_encoder.encoder import EntityEncoder
from entity_encoder.normalisation import RunningNorm

__all__ = ["ENOUGH_TO_BEGIN", "find_encoders", "never_updated", "update_statistics"]

# Fewer first observations would make columns look constant, and those are scaled out of measure.
ENOUGH_TO_BEGIN = 16


def find_encoders(module: nn.Module) -> Iterator[EntityEncoder]:
    """Yield every encoder inside a module, each once."""
    return (part for part in module.modules() if isinstance(part, EntityEncoder))


def update_statistics(
    module: nn.Module,
    observation: Mapping[str, Any],
    valid: Tensor | None = None,
    *,
    together: bool = False,
) -> None:
    """Let all encoders inside a module see observations; see `EntityEncoder.update_statistics`.

    Args:
        module: Anything that holds encoders.
        observation: Like the encoder's.
        valid: (...) bool, which observations count. None: all.
        together: Whether several processes of `torch.distributed`, whose statistics are equal,
            each saw a part: they agree on what all saw.
    """
    for encoder in find_encoders(module):
        if not (together and dist.is_initialized() and dist.get_world_size() > 1):
            encoder.update_statistics(observation, valid)
            continue
        before = [_moments(norm) for norm in _norms(encoder)]
        for norm in _norms(encoder):
            _set(norm, *(torch.zeros_like(value) for value in _moments(norm)))
        encoder.update_statistics(observation, valid)  # this process's part alone
        for norm, start in zip(_norms(encoder), before, strict=True):
            parts = _gather(_moments(norm))
            _set(norm, *start)
            for part in parts:  # in the order of ranks, so that all round alike
                _set(norm, *_merge(_moments(norm), part))


Moments = tuple[Tensor, Tensor, Tensor]


def _norms(encoder: EntityEncoder) -> list[RunningNorm]:
    norms = [*encoder.group_norms, *encoder.global_norms]
    return [norm for norm in norms if isinstance(norm, RunningNorm)]


def _moments(norm: RunningNorm) -> Moments:
    """Return count (), mean (F,) and sum of squared deviations (F,), as copies."""
    return norm.count.clone(), norm.mean.clone(), norm.square.clone()


def _set(norm: RunningNorm, count: Tensor, mean: Tensor, square: Tensor) -> None:
    norm.count.copy_(count)
    norm.mean.copy_(mean)
    norm.square.copy_(square)


def _gather(own: Moments) -> list[Moments]:
    """Return the moments of all processes."""
    flat = torch.cat([value.reshape(-1) for value in own])
    received = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(received, flat)
    size = len(own[1])
    return [(part[0], part[1 : 1 + size], part[1 + size :]) for part in received]


def _merge(first: Moments, second: Moments) -> Moments:
    """Return the moments of both sets together (Chan et al. 1979)."""
    count = first[0] + second[0]
    share = second[0] / count.clamp(min=1)
    delta = second[1] - first[1]
    square = first[2] + second[2] + delta**2 * first[0] * share
    return count, first[1] + delta * share, square


def never_updated(module: nn.Module) -> bool:
    """Whether no encoder inside the module has statistics yet."""
    norms = [norm for encoder in find_encoders(module) for norm in _norms(encoder)]
    return all(int(norm.count) == 0 for norm in norms)
