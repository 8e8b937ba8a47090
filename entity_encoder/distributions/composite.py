"""Several actions of different kinds taken together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from entity_encoder.distributions.protocol import ActionDistribution

__all__ = ["Composite"]


class Composite:
    """Independent parts; the joint log-probability and entropy are sums over them.

    A part may depend on another: with `conditions={"target": ("kind", (1, 2))}` the target
    matters only where the chosen kind is 1 or 2. Elsewhere it is drawn, but its log-probability
    is not counted, and its entropy counts with the probability that it matters.

    Args:
        parts: Distributions by key (actions are dicts) or in a sequence (actions are tuples).
        conditions: Part -> (the categorical part that decides, the choices under which this part
            matters).

    Raises:
        ValueError: When a condition names parts that do not exist or depend on others in turn.
    """

    def __init__(
        self,
        parts: Mapping[str, ActionDistribution] | Sequence[ActionDistribution],
        conditions: Mapping[Any, tuple[Any, Sequence[int]]] | None = None,
    ) -> None:
        self._named = isinstance(parts, Mapping)
        self.parts: dict[Any, Any] = dict(
            parts.items() if isinstance(parts, Mapping) else enumerate(parts)
        )
        self.conditions = dict(conditions or {})
        if not self.parts:
            raise ValueError("parts must hold at least one distribution, got none")
        for key, (decider, choices) in self.conditions.items():
            if key not in self.parts or decider not in self.parts or decider in self.conditions:
                raise ValueError(
                    f"conditions must map a part to an unconditional one among "
                    f"{list(self.parts)}, got {key!r} decided by {decider!r}"
                )
            if not choices:
                raise ValueError(f"the condition of {key!r} must list choices of {decider!r}")

    def _pack(self, make: Callable[[Any], Any]) -> Any:
        values = {key: make(key) for key in self.parts}
        return values if self._named else tuple(values.values())

    @property
    def probs(self) -> Any:
        """Probabilities of each part that has some; None for real-valued ones."""
        return self._pack(lambda key: getattr(self.parts[key], "probs", None))

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Draw every part."""
        return self._pack(lambda key: self.parts[key].sample(generator))

    def mode(self) -> Any:
        """Return every part's deterministic action."""
        return self._pack(lambda key: self.parts[key].mode())

    def to_env(self, action: Any) -> Any:
        """Turn every part into what the environment shall receive."""
        return self._pack(lambda key: self.parts[key].to_env(action[key]))

    def log_prob(self, action: Any) -> Tensor:
        """Return the joint log-probability: (...).

        Raises:
            ValueError: When the action lacks a part.
        """
        given = list(action) if self._named else list(range(len(action)))
        if sorted(map(str, given)) != sorted(map(str, self.parts)):
            raise ValueError(f"action must have the parts {list(self.parts)}, got {given}")
        return self._total(lambda key: self._counted_log_prob(key, action))

    def _counted_log_prob(self, key: Any, action: Any) -> Tensor:
        log_p = self.parts[key].log_prob(action[key])
        if key not in self.conditions:
            return log_p
        decider, choices = self.conditions[key]
        # One comparison each: a list of choices would have to be copied to the device.
        matters = reduce(operator.or_, (action[decider] == choice for choice in choices))
        return torch.where(matters, log_p, 0.0)

    def entropy(self) -> Tensor:
        """Return the joint entropy: (...).

        With conditions, H = H(decider) + P(the part matters) H(part).
        """
        return self._total(self._counted_entropy)

    def _counted_entropy(self, key: Any) -> Tensor:
        entropy = self.parts[key].entropy()
        if key not in self.conditions:
            return entropy
        decider, choices = self.conditions[key]
        part = self.parts[decider]
        likely = [part.probs[..., int(choice) - int(part.start)] for choice in choices]
        return entropy * sum(likely[1:], start=likely[0])

    def _total(self, term: Callable[[Any], Tensor]) -> Tensor:
        first, *rest = (term(key) for key in self.parts)
        return sum(rest, start=first)
