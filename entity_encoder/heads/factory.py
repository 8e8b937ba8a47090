"""From an action space to the head that serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.encoder import EntityEncoder
from entity_encoder.errors import nearest
from entity_encoder.heads.base import ActionHead
from entity_encoder.heads.composite import CompositeHead
from entity_encoder.heads.entity import PerEntityActionHead, SelectEntityHead
from entity_encoder.heads.pooled import BoxHead, DiscreteHead, MultiBinaryHead, MultiDiscreteHead
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["make_action_head"]

_SUPPORTED = (
    "Discrete, MultiDiscrete, MultiBinary, Box of floats, SelectEntity, PerEntity, and Dict or "
    "Tuple of these"
)

Conditions = Mapping[Any, tuple[Any, Sequence[int]]]


def make_action_head(
    space: spaces.Space[Any],
    encoder: EntityEncoder,
    *,
    hidden: Sequence[int] = (),
    squash: bool = False,
    conditions: Conditions | None = None,
) -> ActionHead:
    """Build the module that turns an encoding into a distribution over actions.

    Masks of legal actions come with the observation, 1 = legal. The key is `action_mask`; for a
    part of a Dict it is `action_mask_<key>`, of a Tuple `action_mask_<index>`, and so on inwards
    (`action_mask_<key>_<key>`). Shapes: Discrete (n,), MultiDiscrete (sum(nvec),), MultiBinary and
    Box the space's own, SelectEntity (slots,), PerEntity (slots, choices). Presence of targets and
    actors is applied always and needs no mask.

    Args:
        space: Action space of one environment (not the batched one).
        encoder: Encoder whose encodings the head will read; its weights stay its own.
        hidden: Widths of hidden layers between encoding and scores.
        squash: Whether Box actions are squashed into their bounds by tanh instead of clipped.
        conditions: For Dict and Tuple: part -> (deciding part, choices). The part matters only
            where the deciding part takes one of these choices; elsewhere it adds nothing to
            log-probability and entropy, and needs no legal choice.

    Raises:
        ValueError: For a space that cannot be served, a group that does not exist or has another
            number of slots, an action mask in the observation that belongs to no part.

    Example:
        >>> space = spaces.Dict(
        ...     ship=spaces.Box(-1, 1, (5, 3)), ship_mask=spaces.MultiBinary(5)
        ... )
        >>> encoder = EntityEncoder(space)
        >>> head = make_action_head(spaces.Discrete(4), encoder)
        >>> observation = space.sample()
        >>> head(encoder(observation), observation).probs.shape
        torch.Size([4])
    """
    head = _build(space, encoder, "action_mask", tuple(hidden), squash, conditions or {})
    keys = list(head.mask_shapes(_slots(encoder)))
    for key in encoder.schema.action_masks:
        if key not in keys:
            raise ValueError(
                f"action masks in the observation must be among {keys} for {space}, "
                f"got {key!r}{nearest(key, keys)}"
            )
    return head


def _build(
    space: spaces.Space[Any],
    encoder: EntityEncoder,
    mask_key: str,
    hidden: Sequence[int],
    squash: bool,
    conditions: Conditions,
) -> ActionHead:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _build_composite(space, encoder, mask_key, hidden, squash, conditions)
    if conditions:
        raise ValueError(f"conditions must go with a Dict or Tuple action space, got {space}")
    masked = mask_key in encoder.schema.action_masks
    width = encoder.output_dim
    if isinstance(space, SelectEntity):
        _check_group(encoder, "group", space.group, space.slots)
        return SelectEntityHead(space, mask_key, masked, width, hidden, d_model=encoder.d_model)
    if isinstance(space, PerEntity):
        _check_group(encoder, "group", space.group, space.slots)
        if space.target is not None:
            _check_group(encoder, "target", space.target, space.target_slots)
        return PerEntityActionHead(space, mask_key, masked, width, hidden, d_model=encoder.d_model)
    if isinstance(space, spaces.Discrete):
        return DiscreteHead(space, mask_key, masked, width, hidden)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteHead(space, mask_key, masked, width, hidden)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinaryHead(space, mask_key, masked, width, hidden)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxHead(space, mask_key, masked, width, hidden, squash=squash)
    raise ValueError(f"action space must be one of {_SUPPORTED}, got {space}")


def _build_composite(
    space: spaces.Dict | spaces.Tuple,
    encoder: EntityEncoder,
    mask_key: str,
    hidden: Sequence[int],
    squash: bool,
    conditions: Conditions,
) -> CompositeHead:
    subspaces: dict[Any, spaces.Space[Any]] = dict(
        space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    )
    if not subspaces:
        raise ValueError(f"action space must have at least one part, got {space}")
    for key, (decider, choices) in conditions.items():
        _check_condition(key, decider, choices, subspaces, conditions)
    parts = {
        key: _build(part, encoder, f"{mask_key}_{key}", hidden, squash, {})
        for key, part in subspaces.items()
    }
    keys = [key for part in parts.values() for key in part.mask_shapes(_slots(encoder))]
    if len(set(keys)) < len(keys):
        raise ValueError(f"parts of the action space must have distinct mask keys, got {keys}")
    return CompositeHead(space, mask_key, parts, conditions)


def _slots(encoder: EntityEncoder) -> dict[str, int]:
    return {group.name: group.slots for group in encoder.schema.groups}


def _check_condition(
    key: Any,
    decider: Any,
    choices: Sequence[int],
    parts: Mapping[Any, spaces.Space[Any]],
    conditions: Conditions,
) -> None:
    for name in (key, decider):
        if name not in parts:
            close = nearest(str(name), map(str, parts))
            raise ValueError(f"conditions must name parts {list(parts)}, got {name!r}{close}")
    if not isinstance(parts[decider], spaces.Discrete) or decider in conditions:
        raise ValueError(
            f"the part that decides about {key!r} must be an unconditional Discrete, got "
            f"{decider!r}: {parts[decider]}"
        )
    if not choices or not all(parts[decider].contains(np.int64(choice)) for choice in choices):
        raise ValueError(
            f"the condition of {key!r} must list choices of {parts[decider]}, got {choices}"
        )


def _check_group(encoder: EntityEncoder, role: str, name: str, slots: int) -> None:
    group = encoder.schema.group(name)
    if group.critic_only:
        raise ValueError(f"{role} {name!r} must be visible to the policy, got a critic-only group")
    if group.slots != slots:
        raise ValueError(
            f"{role} {name!r} must have {group.slots} slots like the observation, got {slots}"
        )
