import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder.envs.groups import Global, Group, check_option, make_schema, make_space
from entity_encoder.schema import EgoFrame, EntitySchema

GROUPS = (
    Group("ship", 3, {"x": (-5, 7), "y": (-1, 2), "a": (-4, 4)}, ("x", "y"), angles=("a",)),
    Group("ghost", 2, critic_only=True),
)


def test_space_has_the_declared_bounds() -> None:
    space = make_space(GROUPS, (Global("time", 2, -3.0, 9.0),), None)
    assert space["ship"] == spaces.Box(
        np.tile(np.array([-5, -1, -4], np.float32), (3, 1)),
        np.tile(np.array([7, 2, 4], np.float32), (3, 1)),
    )
    assert space["ghost"].shape == (2, 0)
    assert space["ship_mask"] == spaces.MultiBinary(3)
    assert space["time"] == spaces.Box(-3.0, 9.0, (2,))
    assert set(space) == {"ship", "ship_mask", "ghost", "ghost_mask", "time"}


@pytest.mark.parametrize("shape", [(5,), (3, 4)])
def test_action_mask_has_the_shape_asked_for(shape: tuple[int, ...]) -> None:
    assert make_space(GROUPS, (), shape)["action_mask"].shape == shape


def test_schema_names_positions_frame_and_what_only_the_critic_sees() -> None:
    schema = make_schema(
        GROUPS, (Global("time", 2, critic_only=True),), EgoFrame("ship", ("a",)), True
    )
    assert schema.group("ship").positions == ("x", "y")
    assert schema.group("ship").angles == ("a",)
    assert schema.group("ghost").critic_only
    assert schema.globals[0].critic_only
    assert schema.frame == EgoFrame("ship", ("a",))
    assert schema.action_masks == ("action_mask",)
    assert EntitySchema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize("value", [0, 9, 2.5, True])
def test_option_outside_its_range_names_option_and_range(value: object) -> None:
    with pytest.raises(ValueError, match=f"mines must be a whole number from 1 to 8, got {value}"):
        check_option("mines", value, 1, 8)  # type: ignore[arg-type]


def test_option_inside_its_range_is_returned() -> None:
    assert check_option("mines", 8, 1, 8) == 8
