"""Claims about schemas: what they refuse, and what survives JSON."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given

from entity_encoder import EgoFrame, EntityGroup, EntitySchema, GlobalFeature
from tests.entity_encoder.strategies import fill, schemas

SHIP = EntityGroup("ship", 3, ("x", "y", "hull"), "ship_mask", positions=("x", "y"))
ROCK = EntityGroup("rock", 5, ("x", "y"), "rock_mask", positions=("x", "y"), critic_only=True)
FLAG = EntityGroup("flag", 7, (), "flag_mask")
SCHEMA = EntitySchema(
    (SHIP, ROCK, FLAG),
    (GlobalFeature("wind", 2), GlobalFeature("tide", 1)),
    EgoFrame("ship"),
    ("action_mask",),
)


def test_slots_lie_side_by_side_in_the_order_of_the_groups() -> None:
    assert SCHEMA.slots == 15
    assert SCHEMA.slices == {"ship": slice(0, 3), "rock": slice(3, 8), "flag": slice(8, 15)}
    assert SCHEMA.group("rock") is ROCK
    assert SHIP.columns(("hull", "x")) == [2, 0]


def test_a_schema_is_immutable_hashable_and_picklable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SCHEMA.frame = None  # type: ignore[misc]
    assert hash(SCHEMA) == hash(EntitySchema.from_dict(SCHEMA.to_dict()))
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA


@given(schemas())
def test_json_gives_the_same_schema_back(schema: EntitySchema) -> None:
    text = json.dumps(schema.to_dict(), allow_nan=False)
    assert EntitySchema.from_dict(json.loads(text)) == schema


def test_json_keeps_frames_categories_action_masks_and_the_grid() -> None:
    ego = EntityGroup("ego", 1, ("x", "y", "a"), "m", positions=("x", "y"), angles=("a",))
    tank = EntityGroup(
        "tank", 2, ("vx", "vy", "kind"), "tm", directions=("vx", "vy"), categories=(("kind", 4),)
    )
    schema = EntitySchema((ego, tank), (), EgoFrame("ego", heading=("a",)), ("action_mask",), 0.5)
    assert EntitySchema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_lists_are_accepted_and_kept_as_tuples() -> None:
    group = EntityGroup("a", 2, ["x", "y"], "m", positions=["x", "y"])  # type: ignore[arg-type]
    assert group.features == group.positions == ("x", "y")
    schema = EntitySchema([group], [GlobalFeature("g", 1)])  # type: ignore[arg-type]
    assert schema.groups == (group,)


def test_the_space_it_builds_reads_back_as_itself() -> None:
    schema = dataclasses.replace(SCHEMA, frame=None, action_masks=())
    columns = {group.name: group.features for group in schema.groups}
    places = {"ship": ("x", "y"), "rock": ("x", "y")}
    space = schema.space(-2.0, 3.0)
    assert space["ship"] == spaces.Box(-2.0, 3.0, (3, 3), np.float32)
    again = EntitySchema.from_space(space, features=columns, positions=places, critic_only=["rock"])
    # gymnasium sorts the keys of a Dict.
    assert sorted(again.groups, key=str) == sorted(schema.groups, key=str)
    assert set(again.globals) == set(schema.globals)


def test_other_capacities_change_nothing_else() -> None:
    wide = SCHEMA.with_slots({"rock": 11})
    assert [group.slots for group in wide.groups] == [3, 11, 7]
    assert wide.with_slots({"rock": 5}) == SCHEMA


def test_critic_only_parts_are_found() -> None:
    assert SCHEMA.has_critic_only
    assert EntitySchema((FLAG,), (GlobalFeature("g", 1, critic_only=True),)).has_critic_only
    assert not EntitySchema((FLAG,)).has_critic_only


def test_check_passes_what_fits_and_names_what_does_not() -> None:
    schema = EntitySchema((SHIP, FLAG), (GlobalFeature("wind", 2),))
    good = fill(schema, 5, seed=0, density=0.5)
    schema.check(good)
    schema.check({key: value[0] for key, value in good.items()})
    bad = dict(good, ship=good["ship"].copy(), ship_mask=np.ones((5, 3)))
    bad["ship"][4, 1, 2] = np.nan
    with pytest.raises(ValueError, match="environment 4, key 'ship', slot 1, feature 'hull'"):
        schema.check(bad)


BAD_GROUPS: list[tuple[dict[str, Any], str]] = [
    ({"slots": -1}, "slots must be at least 0, got -1"),
    ({"features": ("x", "x")}, r"features of 'ship' must be unique, got \('x', 'x'\)"),
    ({"positions": ("x", "yy")}, "positions of group 'ship' must name columns among"),
    ({"directions": ("hulk", "x")}, "got 'hulk'; did you mean 'hull'"),
    ({"angles": ("q",)}, r"angles of group 'ship' must name columns .* got 'q'$"),
    ({"categories": (("hul", 3),)}, "categories of group 'ship' .* did you mean 'hull'"),
    ({"categories": (("hull", 0),)}, "category 'hull' of group 'ship' must have at least 1 value"),
    ({"presence": "her", "mask_key": None}, "presence of group 'ship' must name columns"),
    ({"directions": ("x", "y", "hull")}, "directions of group 'ship' must come in pairs"),
    ({"mask_key": None}, "group 'ship' must have a mask_key or a presence column, got neither"),
]


@pytest.mark.parametrize(("change", "message"), BAD_GROUPS, ids=lambda x: str(x)[:40])
def test_groups_refuse_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SHIP, **change)


def test_global_features_refuse_a_negative_size() -> None:
    with pytest.raises(ValueError, match="size must be at least 0, got -2"):
        GlobalFeature("wind", -2)


def test_frames_refuse_three_heading_columns() -> None:
    with pytest.raises(ValueError, match=r"heading must be \(\), an angle .* or a direction"):
        EgoFrame("ship", heading=("a", "b", "c"))


def _group(name: str, features: tuple[str, ...], **more: Any) -> EntityGroup:
    return EntityGroup(name, 2, features, f"{name}_mask", **more)


def test_schemas_refuse_names_that_stand_twice() -> None:
    with pytest.raises(ValueError, match="groups must hold at least one EntityGroup, got none"):
        EntitySchema(())
    with pytest.raises(ValueError, match="names of groups, globals and masks must be unique"):
        EntitySchema((SHIP, SHIP))
    with pytest.raises(ValueError, match="names of groups, globals and masks must be unique"):
        EntitySchema((SHIP,), (GlobalFeature("ship_mask", 3),))


def test_two_groups_may_share_a_mask() -> None:
    twin = EntityGroup("twin", 3, ("x",), "ship_mask")
    assert "twin" in EntitySchema((SHIP, twin)).slices


def test_schemas_refuse_frames_and_positions_that_do_not_fit() -> None:
    plain, solid = _group("plain", ("x", "y")), ("x", "y", "z")
    with pytest.raises(ValueError, match=r"group must be one of .*got 'shop'; did you mean 'ship'"):
        EntitySchema((SHIP,), (), EgoFrame("shop"))
    with pytest.raises(ValueError, match="the frame's group 'plain' must declare its position"):
        EntitySchema((plain,), (), EgoFrame("plain"))
    with pytest.raises(ValueError, match=r"heading must name columns of 'ship' .* mean 'hull'"):
        EntitySchema((SHIP,), (), EgoFrame("ship", heading=("hul",)))
    with pytest.raises(ValueError, match="positions must have one length in every group"):
        EntitySchema((SHIP, _group("fish", solid, positions=solid)))
    with pytest.raises(ValueError, match="a rotating frame needs two position columns"):
        EntitySchema((_group("fish", solid, positions=solid),), (), EgoFrame("fish", ("x",)))
