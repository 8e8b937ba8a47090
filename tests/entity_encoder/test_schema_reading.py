"""Claims about reading a schema from a gymnasium space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder import EgoFrame, EntityGroup, EntitySchema, GlobalFeature

Space = spaces.Space[Any]


def _box(*shape: int) -> spaces.Box:
    return spaces.Box(-1, 1, shape, np.float32)


def test_groups_masks_globals_and_action_masks_are_told_apart() -> None:
    space = spaces.Dict(
        ship=_box(3, 4),
        ship_mask=spaces.MultiBinary(3),
        rock=_box(7, 2),
        rock_mask=_box(7, 1),
        wind=_box(5),
        action_mask=spaces.MultiBinary(11),
        action_mask_ship=_box(3, 2),
    )
    schema = EntitySchema.from_space(space)
    assert {(g.name, g.slots, len(g.features), g.mask_key) for g in schema.groups} == {
        ("ship", 3, 4, "ship_mask"),
        ("rock", 7, 2, "rock_mask"),
    }
    assert schema.group("rock").features == ("f0", "f1")
    assert schema.globals == (GlobalFeature("wind", 5),)
    assert set(schema.action_masks) == {"action_mask", "action_mask_ship"}


def test_the_mask_of_one_group_may_be_called_mask() -> None:
    space = spaces.Dict(units=_box(3, 4), mask=spaces.Box(0, 1, (3,), np.bool_))
    assert EntitySchema.from_space(space).groups[0].mask_key == "mask"


def test_names_given_by_hand_win() -> None:
    space = spaces.Dict(
        car=_box(3, 4),
        alive=spaces.MultiBinary(3),
        sign=_box(2, 3),
        v=_box(2),
        lamp=_box(5, 0),
        lamp_mask=spaces.MultiBinary(5),
    )
    schema = EntitySchema.from_space(
        space,
        features={"car": ("x", "y", "c", "s"), "sign": ("seen", "x", "y")},
        positions={"car": ("x", "y"), "sign": ("x", "y")},
        directions={"car": ("c", "s")},
        categories={"sign": {}},
        masks={"car": "alive"},
        presence={"sign": "seen"},
        frame=EgoFrame("car", heading=("c", "s")),
        critic_only=["sign", "v"],
    )
    assert schema.group("car") == EntityGroup(
        "car", 3, ("x", "y", "c", "s"), "alive", None, ("x", "y"), ("c", "s")
    )
    assert schema.group("sign").presence == "seen"
    assert schema.group("sign").critic_only
    assert schema.group("lamp").features == ()
    assert schema.globals == (GlobalFeature("v", 2, critic_only=True),)


def test_integer_columns_become_categories() -> None:
    space = spaces.Dict(a=_box(3, 2), mask=spaces.MultiBinary(3))
    schema = EntitySchema.from_space(
        space, features={"a": ("kind", "hp")}, categories={"a": {"kind": 7}}, angles={"a": ("hp",)}
    )
    assert schema.groups[0].categories == (("kind", 7),)
    assert schema.groups[0].angles == ("hp",)


READABLE: dict[str, Space] = {"a": _box(3, 2), "a_mask": spaces.MultiBinary(3)}
REFUSED: list[tuple[Space, dict[str, Any], str]] = [
    (_box(5, 3), {}, r"got Box.*deliver spaces.Dict\(\{'entities': Box\(\(5, 3\)\)"),
    (spaces.Graph(_box(2), None), {}, "must be a spaces.Dict, got Graph.*GraphToEntities"),
    (spaces.Sequence(_box(2)), {}, "got Sequence.*SequenceToEntities"),
    (spaces.Discrete(3), {}, "must be a spaces.Dict, got Discrete.*an entity observation is"),
    (spaces.Dict(wind=_box(5)), {}, r"no group of entities in keys \['wind'\]"),
    (spaces.Dict(a=spaces.Box(0, 1, (3, 2), np.bool_)), {}, "no group of entities"),
    (
        spaces.Dict(a=_box(3, 2)),
        {},
        r"'a' must have a mask: expected key 'a_mask' as MultiBinary\(3\)",
    ),
    (spaces.Dict(a=_box(3, 2), a_mark=spaces.MultiBinary(3)), {}, "did you mean 'a_mark'"),
    (spaces.Dict(a=_box(3, 2), a_mask=spaces.MultiBinary(4)), {}, r"must have shape \(3,\) like"),
    (
        spaces.Dict(a=_box(3, 2), mask=spaces.MultiBinary(3), b=_box(2, 2)),
        {},
        "group 'a' must have a mask",
    ),
    (spaces.Dict(READABLE), {"features": {"a": ("x",)}}, "must name its 2 columns, got 1"),
    (spaces.Dict(READABLE), {"features": {"b": ("x",)}}, "features must name groups among"),
    (spaces.Dict(READABLE), {"positions": {"b": ("x",)}}, "positions must name groups among"),
    (spaces.Dict(READABLE), {"positions": {"a": ("f3",)}}, "positions of group 'a' must name"),
    (spaces.Dict(READABLE), {"masks": {"b": "a_mask"}}, "masks must name groups among"),
    (spaces.Dict(READABLE), {"masks": {"a": "a_msk"}}, "did you mean 'a_mask'"),
    (spaces.Dict(READABLE), {"presence": {"b": "f0"}}, "presence must name groups among"),
    (spaces.Dict(READABLE), {"critic_only": ["b"]}, "critic_only must name groups or global"),
    (spaces.Dict(READABLE, b_mask=_box(4)), {}, "mask 'b_mask' belongs to no group"),
    (spaces.Dict(READABLE, d=spaces.Dict(x=_box(2))), {}, "nested spaces are not read: .*'d.x'"),
    (spaces.Dict(READABLE, g=spaces.Graph(_box(2), None)), {}, "wrap it before vectorising"),
    (
        spaces.Dict(READABLE, k=spaces.Discrete(4)),
        {},
        "key 'k' cannot be read.*deliver it as a Box",
    ),
    (spaces.Dict(READABLE, i=_box(3, 8, 8)), {}, "this looks batched: pass single_observation"),
    (spaces.Dict(READABLE, t=spaces.Text(3)), {}, r"a global feature is a Box of shape \(k,\)"),
]


@pytest.mark.parametrize(("space", "arguments", "message"), REFUSED, ids=lambda x: str(x)[:50])
def test_spaces_that_cannot_be_read_show_the_key_and_a_way_out(
    space: Space, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        EntitySchema.from_space(space, **arguments)
