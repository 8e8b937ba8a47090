"""Look at one observation through the policy's eyes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from entity_encoder.agents.attention.actions import ActionBar, action_bars
from entity_encoder.agents.policy import EntityPolicy

__all__ = ["CLASS_TOKEN", "Look", "look_at"]

#: What stands in the place of an entity's group and slot for the class token.
CLASS_TOKEN = ("class token", 0)


@dataclass(frozen=True)
class Look:
    """What a policy makes of one observation of n present entities.

    Args:
        entities: Group and slot of each present entity, in the order of the maps; the class token
            of pooling="class" comes last.
        attention: (layers, heads, n, n): row i says where entity i looks; each row adds up to 1.
        value: Estimate of the discounted return from here, in the unit of the scaled rewards.
        actions: What the policy is inclined to do.
        state: (1, H) memory of a recurrent policy afterwards, or None.
    """

    entities: tuple[tuple[str, int], ...]
    attention: np.ndarray
    value: float
    actions: tuple[ActionBar, ...]
    state: Tensor | None = None

    @property
    def labels(self) -> list[str]:
        """What to call each entity: its group, with the slot where there are several."""
        kinds = [group for group, _ in self.entities]
        return [
            group if slot == 0 and kinds.count(group) == 1 else f"{group} {slot}"
            for group, slot in self.entities
        ]


@torch.no_grad()
def look_at(
    policy: EntityPolicy,
    observation: Mapping[str, Tensor],
    *,
    state: Tensor | None = None,
    begins: Tensor | None = None,
    active: Tensor | None = None,
    action_names: Sequence[str] = (),
) -> Look:
    """Pass the first row of a batch through the policy and keep its attention.

    Args:
        policy: The policy; nothing of it changes.
        observation: Leaves (E, ...).
        state: Memory (E, H) before, for a recurrent policy.
        begins: (E,) bool, rows that begin an episode.
        active: (E,) bool, rows that act.
        action_names: What the choices of a `Discrete` action space are called.

    Raises:
        ValueError: The policy's core computes no attention between entities.
    """
    rows = [None if x is None else x[:1] for x in (state, begins, active)]
    output = policy(
        {key: value[:1] for key, value in observation.items()},
        state=rows[0],
        begins=rows[1],
        active=rows[2],
        return_attention=True,
    )
    mask, maps = output.encoding.mask[0], output.encoding.attention[0]  # (N,), (L, H, N', N')
    every = [(name, k) for name, part in policy.schema.slices.items() for k in range(_size(part))]
    present = torch.nonzero(mask).flatten().tolist()
    entities = [every[slot] for slot in present]
    if maps.shape[-1] > len(mask):
        present.append(len(mask))
        entities.append(CLASS_TOKEN)
    index = torch.as_tensor(present, device=maps.device, dtype=torch.int64)
    kept = maps.index_select(-1, index).index_select(-2, index)
    return Look(
        entities=tuple(entities),
        attention=kept.float().cpu().numpy(),
        value=float(output.value[0]),
        actions=action_bars(output.distribution, policy.action_space, names=action_names),
        state=output.state,
    )


def _size(part: slice) -> int:
    return int(part.stop - part.start)
