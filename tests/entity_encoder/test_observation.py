"""Claims about the boundary: what is read, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from entity_encoder import EntityGroup, EntitySchema, GlobalFeature
from entity_encoder.observation import as_mask, as_tensor, read_observation

SHIP = EntityGroup("ship", 3, ("x", "y"), "ship_mask", categories=(("y", 4),))
ORE = EntityGroup("ore", 5, ("amount", "there"), presence="there")
SCHEMA = EntitySchema((SHIP, ORE), (GlobalFeature("wind", 2),))


def _observation(*lead: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ship = rng.normal(size=(*lead, 3, 2)).astype(np.float32)
    ship[..., 1] = 3
    ore = rng.normal(size=(*lead, 5, 2)).astype(np.float32)
    ore[..., 1] = rng.random((*lead, 5)) < 0.5
    return {
        "ship": ship,
        "ship_mask": rng.random((*lead, 3)) < 0.5,
        "ore": ore,
        "wind": rng.normal(size=(*lead, 2)).astype(np.float32),
        "action_mask": np.ones((*lead, 4)),
    }


@pytest.mark.parametrize("lead", [(), (7,), (5, 3), (2, 0, 3), (1, 1, 1, 1)])
def test_leading_dimensions_are_flattened(lead: tuple[int, ...]) -> None:
    read = read_observation(SCHEMA, _observation(*lead))
    flat = int(np.prod(lead))
    assert read.lead == lead
    assert [tuple(x.shape) for x in read.features] == [(flat, 3, 2), (flat, 5, 2)]
    assert tuple(read.mask.shape) == (flat, 8)
    assert read.slices == [slice(0, 3), slice(3, 8)]
    assert tuple(read.globals[0].shape) == (flat, 2)


def test_a_presence_column_is_the_mask() -> None:
    observation = _observation(4)
    read = read_observation(SCHEMA, observation)
    assert read.masks[1].tolist() == (observation["ore"][..., 1] > 0.5).tolist()


DTYPES = [np.bool_, np.int8, np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
def test_every_mask_dtype_means_the_same(dtype: Any) -> None:
    mask = np.array([[1, 0, 1], [0, 0, 1]])
    assert as_mask(mask.astype(dtype)).tolist() == mask.astype(bool).tolist()
    observation = _observation(2)
    observation["ship_mask"] = mask.astype(dtype)[..., None]  # (..., slots, 1)
    assert read_observation(SCHEMA, observation).masks[0].tolist() == mask.astype(bool).tolist()


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan, 255])
def test_masks_hold_exactly_zero_and_one(value: float) -> None:
    mask = np.array([[1.0, 0.0, 1.0], [0.0, value, 1.0]])
    with pytest.raises(
        ValueError, match=rf"must hold exactly 0 and 1, got {value}.* at index \[1, 1\]"
    ):
        as_mask(mask, key="m")
    with pytest.raises(ValueError, match="mask 'ship_mask' must hold exactly 0 and 1"):
        read_observation(SCHEMA, {**_observation(2), "ship_mask": mask})


def test_values_are_not_looked_at_when_that_would_cost_a_wait() -> None:
    observation = _observation(2)
    observation["ship"][:] = np.nan
    observation["ship_mask"] = np.full((2, 3), 7)
    read = read_observation(SCHEMA, observation, check=False)
    assert not read.masks[0].any()


def test_arrays_may_be_read_only_reversed_or_lists() -> None:
    observation = _observation(2)
    expected = read_observation(SCHEMA, observation)
    for array in observation.values():
        array.setflags(write=False)
    twice = {key: np.flip(np.flip(array).copy()) for key, array in observation.items()}
    lists = {key: array.tolist() for key, array in observation.items()}
    tensors = {key: torch.from_numpy(array.copy()) for key, array in observation.items()}
    for other in (observation, twice, lists, tensors):
        read = read_observation(SCHEMA, other)
        assert torch.equal(read.features[1], expected.features[1])
        assert torch.equal(read.mask, expected.mask)


def test_writable_arrays_are_not_copied() -> None:
    array = np.zeros((3, 2), np.float32)
    assert as_tensor(array).data_ptr() == array.ctypes.data


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.uint8])
def test_features_of_any_type_become_the_encoders(dtype: Any) -> None:
    observation = _observation(2)
    observation["ship"] = np.arange(12).reshape(2, 3, 2).astype(dtype) % 4
    read = read_observation(SCHEMA, observation)
    assert read.features[0].dtype == torch.float32
    assert read.features[0].flatten().tolist() == [i % 4 for i in range(12)]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e15), (torch.float16, 1e4)])
def test_absurd_but_finite_numbers_are_clipped(dtype: torch.dtype, limit: float) -> None:
    observation = _observation(1)
    observation["ship"][..., 0] = -3e38
    observation["wind"][:] = 3e38
    read = read_observation(SCHEMA, observation, dtype=dtype)
    assert (read.features[0][..., 0] == torch.tensor(-limit, dtype=dtype)).all()
    assert (read.globals[0] == torch.tensor(limit, dtype=dtype)).all()


def _set(observation: dict[str, Any], key: str, place: Any, value: float) -> dict[str, Any]:
    out = {k: np.array(v) for k, v in observation.items()}
    out[key][place] = value
    out["ship_mask"][:] = True
    return out


def test_a_bad_number_in_a_present_entity_is_named() -> None:
    with pytest.raises(ValueError, match=r"got nan in environment 5, key 'ship', slot 2, .*'x'"):
        read_observation(SCHEMA, _set(_observation(7), "ship", (5, 2, 0), np.nan))
    with pytest.raises(
        ValueError, match=r"got inf in environment 2 \(index \(1, 2\)\), key 'ship'"
    ):
        read_observation(SCHEMA, _set(_observation(3, 4), "ship", (1, 2, 0, 0), np.inf))
    with pytest.raises(ValueError, match="got nan in the single environment, key 'ship', slot 1"):
        read_observation(SCHEMA, _set(_observation(), "ship", (1, 0), np.nan))
    with pytest.raises(
        ValueError, match="global features must be finite, got inf in environment 3"
    ):
        read_observation(SCHEMA, _set(_observation(7), "wind", (3, 1), np.inf))
    with pytest.raises(ValueError, match="presence column 'there' of 'ore' must be a number"):
        read_observation(SCHEMA, _set(_observation(7), "ore", (3, 1, 1), np.nan))


@pytest.mark.parametrize("value", [-1, 4, 1.5])
def test_an_unknown_category_is_named_in_a_present_slot_only(value: float) -> None:
    observation = _set(_observation(7), "ship", (6, 1, 1), value)
    with pytest.raises(
        ValueError,
        match=rf"'y' must be an integer in \[0, 4\), got {value:g} in "
        "environment 6, key 'ship', slot 1",
    ):
        read_observation(SCHEMA, observation)
    observation["ship_mask"][6, 1] = False
    read_observation(SCHEMA, observation)


def test_shapes_that_do_not_fit_are_named() -> None:
    good = _observation(7)
    with pytest.raises(ValueError, match=r"must hold key 'ship_mask', got .*; did you mean 'ship'"):
        read_observation(SCHEMA, {"ship": good["ship"]})
    with pytest.raises(
        ValueError, match=r"'ship' must have shape \(..., slots, 2\), got \(7, 3, 1\)"
    ):
        read_observation(SCHEMA, {**good, "ship": good["ship"][..., :1]})
    with pytest.raises(ValueError, match=r"'ship' must have shape .* got \(2,\)"):
        read_observation(SCHEMA, {**good, "ship": good["ship"][0, 0]})
    with pytest.raises(ValueError, match=r"'ship_mask' must have shape \(7, 3\) .* got \(7, 2\)"):
        read_observation(SCHEMA, {**good, "ship_mask": good["ship_mask"][:, :2]})
    with pytest.raises(
        ValueError, match=r"the same for every key, got \(6,\) for 'ore' after \(7,\)"
    ):
        read_observation(SCHEMA, {**good, "ore": good["ore"][:6]})
    with pytest.raises(ValueError, match=r"'wind' must have shape \(7, 2\), got \(7, 1\)"):
        read_observation(SCHEMA, {**good, "wind": good["wind"][:, :1]})
