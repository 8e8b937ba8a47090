import pickle
from typing import Any

import numpy as np
import pytest
import torch

from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.schema import EgoFrame

# Ramp: column i holds i. 2 + 3 x 2 + 1 unused + 3 x 1 + 4 = 16 columns.
BLOCKS = [
    Block("own", 0, features=("x", "y"), positions=("x", "y")),
    Block("other", 2, 3, features=("dx", "dy"), positions=("dx", "dy")),
    Block("other", 9, 3, features=("hp",), presence="hp > 9"),
    Block("speech", 12, width=4, is_global=True),
]
RAMP = np.arange(16.0)


def layout(**options: Any) -> Layout:
    return Layout(BLOCKS, ignore=[(8, 9)], **options)


def test_blocks_of_one_name_stand_side_by_side() -> None:
    cut = layout().split(RAMP)
    assert cut["own"].tolist() == [[0, 1]]
    assert cut["own_mask"].tolist() == [1]
    assert cut["other_mask"].tolist() == [0, 1, 1]  # hp 9, 10, 11
    assert cut["other"].tolist() == [[0, 0, 0], [4, 5, 10], [6, 7, 11]]
    assert cut["speech"].tolist() == [12, 13, 14, 15]
    assert {v.dtype for v in cut.values()} == {np.dtype(np.float32), np.dtype(np.int8)}


@pytest.mark.parametrize("lead", [(), (3,), (2, 5)])
def test_tensors_and_arrays_are_cut_alike_with_any_leading_dimensions(
    lead: tuple[int, ...],
) -> None:
    flat = np.random.default_rng(0).normal(9, 3, (*lead, 16))
    arrays, tensors = layout().split(flat), layout().split(torch.as_tensor(flat))
    assert arrays.keys() == tensors.keys()
    for key, value in arrays.items():
        np.testing.assert_array_equal(tensors[key].numpy(), value)
    assert tensors["other"].shape == (*lead, 3, 3)
    assert tensors["other_mask"].dtype == torch.bool
    assert tensors["other"].dtype == torch.float32


@pytest.mark.parametrize(
    ("rule", "mask"),
    [
        ("always", [1, 1, 1]),
        ("nonzero", [1, 0, 1]),
        ("first 2", [1, 1, 0]),
        ("hp > 0", [1, 0, 0]),
        ("hp > -0.5", [1, 1, 0]),
    ],
)
def test_presence_rules(rule: str, mask: list[int]) -> None:
    cut = Layout([Block("unit", 0, 3, features=("kind", "hp"), presence=rule)])
    flat = np.array([0, 5, 0, 0, 0, -1])
    assert cut.split(flat)["unit_mask"].tolist() == mask
    assert cut.split(torch.tensor(flat))["unit_mask"].tolist() == [bool(m) for m in mask]


def test_a_schema_declares_positions_and_frame() -> None:
    schema = layout().schema(action_masks=["action_mask"])
    assert schema.group("other").features == ("dx", "dy", "hp")
    assert schema.group("other").positions == ("dx", "dy")
    assert [(item.name, item.size) for item in schema.globals] == [("speech", 4)]
    assert schema.action_masks == ("action_mask",)
    assert layout().schema(frame=EgoFrame("own")).frame == EgoFrame("own")


def test_a_group_of_no_rows_is_left_out() -> None:
    alone = Layout([Block("own", 0, width=2), Block("other", 2, 0, width=2)])
    assert list(alone.groups) == ["own"]
    assert alone.width == 2


def test_a_layout_can_be_pickled() -> None:
    twin = pickle.loads(pickle.dumps(layout()))
    np.testing.assert_array_equal(twin.split(RAMP)["other"], layout().split(RAMP)["other"])


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            [Block("a", 1, width=2)],
            r"got 'a' from column 1, which leaves a gap after the beginning",
        ),
        (
            [Block("a", 0, 2, 3), Block("b", 5, width=1)],
            r"got 'b' from column 5, which overlaps 'a' \(up to column 6\); name .* in ignore",
        ),
        (
            [Block("a", 0, 2, 3), Block("a", 6, 3, 1)],
            r"blocks of 'a' must have one count and one is_global, got \[\(2, False\), \(3, False",
        ),
        (
            [Block("a", 0, 2, 1, presence="nonzero"), Block("a", 2, 2, 1, presence="first 1")],
            r"must have one presence rule, got \['nonzero', 'first 1'\]",
        ),
        (
            [Block("a", 0, 2, features=("health",), presence="healt > 0")],
            r"presence of 'a' must compare a column among \['health'\], got 'healt'; did you",
        ),
        ([Block("a", 0, width=2, is_global=True)], "must hold a group of entities, got"),
    ],
)
def test_layouts_that_cannot_be_are_refused(blocks: list[Block], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(blocks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": -1, "width": 1}, "start >= 0, count >= 0 and width >= 1, got -1, 1, 1"),
        ({"start": 0}, "got 0, 1, 0"),
        ({"start": 0, "width": 3, "features": ("x",)}, r"must name its 3 columns, got \('x',\)"),
        ({"start": 0, "width": 1, "count": 2, "is_global": True}, "must have count 1, got 2"),
        ({"start": 0, "width": 1, "presence": "hp >= 0"}, "'<column> > <number>', got 'hp >= 0'"),
    ],
)
def test_blocks_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Block("unit", **options)


def test_another_width_is_refused_and_names_the_versions() -> None:
    with pytest.raises(ValueError, match=r"must have 16 columns, got 17$"):
        layout().split(np.zeros(17))
    with pytest.raises(ValueError, match=r"got 15; numpy .* versions known to work: 0\.1"):
        layout(package="numpy", known=["0.1"]).check(15)
