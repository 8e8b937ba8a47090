"""Running normalisation inside other libraries: when its statistics may change.

The encoder's statistics are buffers that `forward` never changes. Between collecting a rollout and
the end of learning from it they must stay as they are, otherwise the policy that learns is not the
policy that acted and PPO's first ratio is not 1. So every integration updates them at one moment:
after the last gradient step on a rollout, before the first step of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from entity_encoder.encoder import EntityEncoder

__all__ = ["ENOUGH_TO_BEGIN", "find_encoders", "never_updated", "update_statistics"]

# Fewer first observations would make columns look constant, and those are scaled out of measure.
ENOUGH_TO_BEGIN = 16


def find_encoders(module: nn.Module) -> Iterator[EntityEncoder]:
    """Yield every encoder inside a module, each once."""
    return (part for part in module.modules() if isinstance(part, EntityEncoder))


def update_statistics(
    module: nn.Module, observation: Mapping[str, Any], valid: Tensor | None = None
) -> None:
    """Let all encoders inside a module see observations; see `EntityEncoder.update_statistics`."""
    for encoder in find_encoders(module):
        encoder.update_statistics(observation, valid)


def never_updated(module: nn.Module) -> bool:
    """Whether no encoder inside the module has statistics yet."""
    norms = [
        norm
        for encoder in find_encoders(module)
        for norm in (*encoder.group_norms, *encoder.global_norms)
    ]
    return all(int(norm.count) == 0 for norm in norms)
