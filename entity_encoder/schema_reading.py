"""Reading an `EntitySchema` from a gymnasium space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from entity_encoder.errors import nearest
from entity_encoder.schema import EgoFrame, EntityGroup, EntitySchema, GlobalFeature

__all__ = ["read_space"]

_CONTRACT = (
    "an entity observation is a spaces.Dict with '<group>': Box(slots, features) and "
    "'<group>_mask': MultiBinary(slots)"
)


def read_space(
    space: spaces.Space[Any],
    *,
    columns: Mapping[str, Mapping[str, Any] | None],
    presence: Mapping[str, str],
    masks: Mapping[str, str],
    frame: EgoFrame | None,
    critic_only: Sequence[str],
) -> EntitySchema:
    """Build the schema; see `EntitySchema.from_space` for the arguments and errors."""
    _require_dict(space)
    assert isinstance(space, spaces.Dict)
    wide = [key for key, sub in space.items() if _rank(sub) == 2 and _is_table(key, sub)]
    # A mask may have shape (slots, 1).
    named = {"mask", *masks.values(), *(f"{key}_mask" for key in wide)}
    tables = [key for key in wide if key not in named]
    if not tables:
        raise ValueError(f"no group of entities in keys {list(space)}: {_CONTRACT}")
    _check_names("masks", masks, tables)
    _check_names("presence", presence, tables)
    for kind, by_group in columns.items():
        _check_names(kind, by_group or {}, tables)

    mask_keys = {name: _mask_key(name, tables, space, presence, masks) for name in tables}
    groups = tuple(
        _read_group(name, space[name], mask_keys[name], columns, presence.get(name), critic_only)
        for name in tables
    )
    used = {*tables, *(key for key in mask_keys.values() if key is not None)}
    for group in groups:
        if group.mask_key is not None:
            _check_mask_space(group, space[group.mask_key])
    action_masks = tuple(key for key in space if key.startswith("action_mask"))
    rest = [key for key in space if key not in used and key not in action_masks]
    vectors = tuple(_read_global(key, space[key], tables, critic_only) for key in rest)
    known = [*tables, *(item.name for item in vectors)]
    for name in critic_only:
        if name not in known:
            raise ValueError(
                f"critic_only must name groups or global features among {known}, "
                f"got {name!r}{nearest(name, known)}"
            )
    return EntitySchema(groups, vectors, frame, action_masks)


def _require_dict(space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Dict):
        return
    fix = _CONTRACT
    if isinstance(space, spaces.Graph):
        fix = "wrap the environment in entity_encoder.envs.GraphToEntities"
    elif isinstance(space, spaces.Sequence):
        fix = "wrap the environment in entity_encoder.envs.SequenceToEntities(max_entities=...)"
    elif isinstance(space, spaces.Box) and len(space.shape) == 2:
        slots, width = space.shape
        fix = (
            f"deliver spaces.Dict({{'entities': Box(({slots}, {width})), "
            f"'mask': MultiBinary({slots})}})"
        )
    raise ValueError(f"observation space must be a spaces.Dict, got {space}; {fix}")


def _rank(space: spaces.Space[Any]) -> int:
    return -1 if space.shape is None else len(space.shape)


def _is_table(key: str, space: spaces.Space[Any]) -> bool:
    return (
        isinstance(space, spaces.Box)
        and space.dtype != np.bool_
        and not key.startswith("action_mask")
    )


def _check_names(kind: str, given: Mapping[str, Any], tables: Sequence[str]) -> None:
    for name in given:
        if name not in tables:
            raise ValueError(
                f"{kind} must name groups among {list(tables)}, got {name!r}{nearest(name, tables)}"
            )


def _mask_key(
    name: str,
    tables: Sequence[str],
    space: spaces.Dict,
    presence: Mapping[str, str],
    masks: Mapping[str, str],
) -> str | None:
    if name in masks:
        if masks[name] not in space.spaces:
            raise ValueError(
                f"masks[{name!r}] must be a key among {list(space)}, got {masks[name]!r}"
                f"{nearest(masks[name], space)}"
            )
        return masks[name]
    if name in presence:
        return None
    if f"{name}_mask" in space.spaces:
        return f"{name}_mask"
    if len(tables) == 1 and "mask" in space.spaces:
        return "mask"
    slots = (space[name].shape or (0,))[0]
    raise ValueError(
        f"group {name!r} must have a mask: expected key '{name}_mask' as MultiBinary({slots}), got "
        f"keys {list(space)}{nearest(f'{name}_mask', set(space) - {name})}; name another key with "
        f"masks={{{name!r}: key}}, or a presence column with presence={{{name!r}: column}}"
    )


def _check_mask_space(group: EntityGroup, space: spaces.Space[Any]) -> None:
    if space.shape not in ((group.slots,), (group.slots, 1)):
        raise ValueError(
            f"mask {group.mask_key!r} must have shape ({group.slots},) like the slots of "
            f"{group.name!r}, got {space}"
        )


def _read_group(
    name: str,
    space: spaces.Space[Any],
    mask_key: str | None,
    columns: Mapping[str, Mapping[str, Any] | None],
    presence: str | None,
    critic_only: Sequence[str],
) -> EntityGroup:
    assert space.shape is not None
    slots, width = space.shape
    given = {kind: (by_group or {}).get(name) for kind, by_group in columns.items()}
    features = given["features"]
    if features is None:
        features = [f"f{i}" for i in range(width)]
    if len(features) != width:
        raise ValueError(
            f"features of {name!r} must name its {width} columns, got {len(features)}: "
            f"{list(features)}"
        )
    return EntityGroup(
        name=name,
        slots=slots,
        features=tuple(features),
        mask_key=mask_key,
        presence=presence,
        positions=tuple(given["positions"] or ()),
        directions=tuple(given["directions"] or ()),
        angles=tuple(given["angles"] or ()),
        categories=tuple((given["categories"] or {}).items()),
        critic_only=name in critic_only,
    )


def _read_global(
    key: str, space: spaces.Space[Any], tables: Sequence[str], critic_only: Sequence[str]
) -> GlobalFeature:
    masks = [f"{name}_mask" for name in tables]
    if isinstance(space, spaces.Box) and _rank(space) == 1 and not key.endswith("mask"):
        return GlobalFeature(key, space.shape[0], key in critic_only)
    if key.endswith("mask"):
        raise ValueError(f"mask {key!r} belongs to no group of {tables}{nearest(key, masks)}")
    if isinstance(space, spaces.Dict | spaces.Tuple):
        fix = f"nested spaces are not read: flatten the keys, for instance '{key}.x'"
    elif isinstance(space, spaces.Graph | spaces.Sequence):
        fix = "wrap it before vectorising: GraphToEntities or SequenceToEntities"
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        fix = "deliver it as a Box: one-hot, or an integer column of a group with categories="
    elif _rank(space) == 3:
        fix = "this looks batched: pass single_observation_space, not observation_space"
    else:
        fix = "a global feature is a Box of shape (k,)"
    raise ValueError(f"key {key!r} cannot be read, got {space}; {fix}")
