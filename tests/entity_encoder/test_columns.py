"""Claims about column indices: they are on the device before they are needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from entity_encoder import EgoFrame, EntityEncoder, EntityGroup, EntitySchema, GlobalFeature
from entity_encoder.columns import column_index

TANK = EntityGroup(
    "tank", 4, ("x", "y", "kind", "hp"), "tm", positions=("x", "y"), categories=(("kind", 3),)
)
EGO = EntityGroup("ego", 1, ("p", "x", "y", "a"), presence="p", positions=("x", "y"), angles=("a",))


class CopiesFromPython(TorchDispatchMode):
    """Write down every tensor that is made from Python numbers: on a GPU each waits for a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.lift_fresh.default:
            self.found.append(args[0])
        return func(*args, **(kwargs or {}))


def test_columns_are_kept_for_each_device() -> None:
    x = torch.zeros(2)
    first = column_index([2, 0], x)
    assert first.tolist() == [2, 0]
    assert column_index((2, 0), x) is first
    assert column_index([], x).dtype == torch.int64


def test_the_copies_are_seen() -> None:
    with CopiesFromPython() as copies:
        torch.zeros(2, 3)[:, [0, 1]]
    assert len(copies.found) == 1


@pytest.mark.parametrize("pooling", ["mean", "ego"])
@pytest.mark.parametrize("heading", [(), ("a",)])
def test_a_pass_makes_no_tensor_from_python_numbers(pooling: str, heading: tuple[str, ...]) -> None:
    frame = EgoFrame("ego", heading=heading)
    schema = EntitySchema((TANK, EGO), (GlobalFeature("time", 1),), frame, grid=1.0)
    options: dict[str, Any] = {"attention": "dense", "check": False, "count_feature": True}
    encoder = EntityEncoder(schema, d_model=24, n_heads=2, pooling=pooling, **options)
    torch.manual_seed(0)
    observation = {
        "tank": torch.rand(5, 4, 4).round(),
        "tm": torch.rand(5, 4) > 0.5,
        "ego": torch.ones(5, 1, 4),
        "time": torch.rand(5, 1),
    }
    encoder(observation)  # the first pass may copy indices
    with CopiesFromPython() as copies:
        encoder(observation)
    assert copies.found == []
