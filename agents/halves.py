"""Two halves of the environments stepped in turn: one steps while actions for the other are chosen.

That pays where a step takes about as long as choosing the actions for it, and is done by worker
processes. Every environment sees what it would see otherwise; only the random numbers of actions
are drawn half by half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from entity_encoder.agents.environments import Environments

__all__ = ["Halves", "parts_of"]


class Halves:
    """Look like one `Environments`, and be stepped part by part.

    Args:
        parts: Environments of one kind, with processes of their own.

    Attributes:
        parts: The same, in the order of their rows.
    """

    def __init__(self, parts: list[Environments]) -> None:
        first = parts[0]
        self.parts = parts
        self.num_envs = sum(part.num_envs for part in parts)
        self.device, self.schema, self.mode = first.device, first.schema, first.mode
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.env = first.env

    @property
    def observation(self) -> dict[str, Tensor]:
        """What the policy sees next, leaves (E, ...)."""
        names = self.parts[0].observation
        return {name: torch.cat([p.observation[name] for p in self.parts]) for name in names}

    @property
    def begins(self) -> Tensor:
        """Where `observation` is the first of an episode, (E,) bool."""
        return torch.cat([part.begins for part in self.parts])

    @property
    def ended(self) -> Tensor:
        """Where the next step only begins an episode, (E,) bool."""
        return torch.cat([part.ended for part in self.parts])

    def reset(self, seed: int | None = None) -> dict[str, Tensor]:
        """Begin an episode everywhere; seeds continue over the parts."""
        first = 0
        for part in self.parts:
            part.reset(None if seed is None else seed + first)
            first += part.num_envs
        return self.observation

    def get_state(self) -> dict[str, Any]:
        """Return what the future depends on."""
        states = [part.get_state() for part in self.parts]
        known = all(state["env"] is not None for state in states)
        # "env" is what environments in one piece would continue from: they cannot.
        return {"env": None, "halves": states if known else None, "ended": self.ended}

    def set_state(self, content: Mapping[str, Any]) -> bool:
        """Continue where `get_state` was called; False where an environment cannot."""
        states = content.get("halves") or []
        sizes = [len(state["ended"]) for state in states]
        if sizes != [part.num_envs for part in self.parts]:
            return False
        return all(p.set_state(state) for p, state in zip(self.parts, states, strict=True))

    def close(self) -> None:
        """Close all environments."""
        for part in self.parts:
            part.close()


def parts_of(envs: Environments | Halves) -> list[tuple[slice, Environments]]:
    """Return what is stepped separately, with its rows among all environments."""
    parts = envs.parts if isinstance(envs, Halves) else [envs]
    rows, first = [], 0
    for part in parts:
        rows.append((slice(first, first + part.num_envs), part))
        first += part.num_envs
    return rows
