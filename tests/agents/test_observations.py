from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntitySchema
from entity_encoder.agents.observations import ObservationReader

SPACE = spaces.Dict(
    ship=spaces.Box(-1, 1, (3, 2), np.float32),
    ship_mask=spaces.MultiBinary(3),
    wind=spaces.Box(-np.inf, 5, (2,), np.float32),
    action_mask=spaces.MultiBinary(4),
    unused=spaces.Discrete(7),
)


def reader() -> ObservationReader:
    return ObservationReader(SPACE, EntitySchema.from_space(KNOWN), torch.device("cpu"))


KNOWN = spaces.Dict({key: part for key, part in SPACE.spaces.items() if key != "unused"})


def observation(**changes: Any) -> dict[str, Any]:
    return {
        "ship": np.full((5, 3, 2), 0.5, np.float32),
        "ship_mask": np.tile(np.array([1, 0, 1], np.int8), (5, 1)),
        "wind": np.zeros((5, 2), np.float32),
        "action_mask": np.ones((5, 4), np.int8),
        "unused": np.arange(5),
        **changes,
    }


def test_only_what_is_needed_is_read_and_masks_become_bool() -> None:
    got = reader().read(observation())
    assert set(got) == {"ship", "ship_mask", "wind", "action_mask"}
    assert got["ship_mask"].dtype == got["action_mask"].dtype == torch.bool
    assert got["ship"].dtype == torch.float32


def test_absent_slots_may_hold_anything() -> None:
    ship = observation()["ship"]
    ship[:, 1] = np.nan
    assert torch.isnan(reader().read(observation(ship=ship))["ship"][:, 1]).all()


def test_a_missing_key_is_named_with_the_nearest() -> None:
    content = observation()
    content["ships"] = content.pop("ship")
    with pytest.raises(ValueError, match=r"hold key 'ship', got .*did you mean 'ships'"):
        reader().read(content)


def test_another_dtype_than_declared_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"'wind' must have the dtype of its space, float32, got f"
    ):
        reader().read(observation(wind=np.zeros((5, 2))))


def test_a_value_outside_the_space_names_its_place() -> None:
    ship = observation()["ship"]
    ship[3, 2, 1] = 1.5
    message = r"in its space, \[-1\.0.*, 1\.0.*\] in key 'ship', slot 2, column 1, got 1\.5 in .* 3"
    with pytest.raises(ValueError, match=message):
        reader().read(observation(ship=ship))
    wind = observation()["wind"]
    wind[4, 0] = 5.1
    with pytest.raises(ValueError, match=r"in key 'wind', column 0, got 5\.1 in environment 4"):
        reader().read(observation(wind=wind))


def test_rounding_at_a_bound_is_forgiven() -> None:
    wind = np.full((5, 2), np.nextafter(np.float32(5), np.float32(6)))
    reader().read(observation(wind=wind))


def test_a_mask_that_was_scaled_is_refused() -> None:
    mask = observation()["ship_mask"].astype(np.float32) * 1.41
    with pytest.raises(ValueError, match="mask 'ship_mask' must hold exactly 0 and 1"):
        reader().read(observation(ship_mask=mask))


def test_keys_are_found_by_name_in_any_order() -> None:
    backwards = dict(reversed(observation().items()))
    for key, value in reader().read(observation()).items():
        assert torch.equal(value, reader().read(backwards)[key])
