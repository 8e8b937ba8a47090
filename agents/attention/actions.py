"""Say what a policy is inclined to do, as labelled bars, for any action space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces
from torch import Tensor

from entity_encoder.distributions import (
    ActionDistribution,
    Composite,
    DiagonalGaussian,
    MaskedBernoulli,
    MaskedCategorical,
    MaskedMultiCategorical,
)
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["ActionBar", "action_bars"]


@dataclass(frozen=True)
class ActionBar:
    """One line beside the frame.

    Args:
        label: The action, or the part of it.
        share: Length of the bar, 0 to 1: a probability, or a number's place between its bounds.
        text: What is written behind it.
    """

    label: str
    share: float
    text: str


def action_bars(
    distribution: ActionDistribution, space: spaces.Space[Any], *, names: Sequence[str] = ()
) -> tuple[ActionBar, ...]:
    """Describe the first row of a batch of distributions.

    A choice gives one bar for each legal action, several choices one for each chooser with its
    likeliest action, switches their probability of "on", numbers their mean.

    Args:
        distribution: Over actions of the space, with one leading dimension.
        space: Action space of one environment.
        names: What the choices of a `Discrete` space are called; none: their numbers.
    """
    return tuple(_bars(distribution, space, names))


def _bars(
    distribution: ActionDistribution, space: spaces.Space[Any], names: Sequence[str]
) -> Iterator[ActionBar]:
    match distribution:
        case MaskedCategorical():
            legal = _first(distribution.mask, distribution.probs)
            for k, p in enumerate(distribution.probs[0].tolist()):
                if legal is None or bool(legal[k]):
                    yield ActionBar(_choice(space, k, names), p, f"{p:.2f}")
        case MaskedMultiCategorical():
            chances = distribution.probs[0]  # (M, K)
            active = _first(distribution.each.active, distribution.probs[..., 0])
            for m, (p, k) in enumerate(zip(*(x.tolist() for x in chances.max(-1)), strict=True)):
                if active is None or bool(active[m]):
                    yield ActionBar(_chooser(space, m), p, f"{_target(space, k)}: {p:.2f}")
        case MaskedBernoulli():
            for k, p in enumerate(distribution.probs[0].flatten().tolist()):
                yield ActionBar(f"switch {k}", p, f"on: {p:.2f}")
        case DiagonalGaussian():
            yield from _numbers(distribution, space)
        case Composite():
            parts = space.spaces if isinstance(space, (spaces.Dict, spaces.Tuple)) else {}
            for key, part in distribution.parts.items():
                for bar in _bars(part, parts[key], ()):
                    yield ActionBar(f"{key} {bar.label}", bar.share, bar.text)


def _numbers(distribution: DiagonalGaussian, space: spaces.Space[Any]) -> Iterator[ActionBar]:
    assert isinstance(space, spaces.Box)
    received = distribution.to_env(distribution.mode())[0].flatten().tolist()
    spread = distribution.std[0].flatten().tolist()
    bounds = zip(space.low.flatten().tolist(), space.high.flatten().tolist(), strict=True)
    for k, (mean, sd, (low, high)) in enumerate(zip(received, spread, bounds, strict=True)):
        bounded = -float("inf") < low < high < float("inf")
        share = (mean - low) / (high - low) if bounded else 0.0
        yield ActionBar(f"number {k}", share, f"{mean:+.2f}, sd {sd:.2f}")


def _first(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return the first row of a mask, which may have been given once for the whole batch."""
    return None if mask is None else mask.expand_as(like)[0]


def _choice(space: spaces.Space[Any], k: int, names: Sequence[str]) -> str:
    if isinstance(space, SelectEntity):
        return f"{space.group} {k}"
    if k < len(names):
        return names[k]
    return f"action {k + int(getattr(space, 'start', 0))}"


def _chooser(space: spaces.Space[Any], m: int) -> str:
    return f"{space.group} {m}" if isinstance(space, PerEntity) else f"part {m}"


def _target(space: spaces.Space[Any], k: int) -> str:
    if isinstance(space, PerEntity) and space.target is not None and k >= space.n:
        return f"{space.target} {k - space.n}"
    return str(k)
