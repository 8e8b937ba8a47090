from typing import Any

import pytest
import torch
from torch import nn

from entity_encoder import EntityEncoder
from entity_encoder.integrations.statistics import (
    find_encoders,
    never_updated,
    update_statistics,
)
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe


def test_every_encoder_inside_a_module_is_found_once() -> None:
    space = Beacon().observation_space
    first, second = EntityEncoder(space, **SMALL), EntityEncoder(space, **SMALL)
    module = nn.ModuleDict({"actor": first, "again": first, "critic": nn.Sequential(second)})
    assert list(find_encoders(module)) == [first, second]
    assert never_updated(module)
    keep = torch.tensor([True, False, True, True])
    update_statistics(module, observe(4), keep)
    assert not never_updated(module)
    present = observe(4)["beacon_mask"][keep.numpy()].sum()
    assert first.group_norms[0].count == second.group_norms[0].count == present


def test_several_processes_agree_on_what_all_of_them_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Beacon().observation_space
    first, mine, theirs = observe(9, seed=1), observe(6, seed=2), observe(3, seed=3)
    alone, other, together = (EntityEncoder(space, **SMALL) for _ in range(3))
    for part in (first, mine, theirs):
        alone.update_statistics(part)
    other.update_statistics(theirs)
    norms = iter([*other.group_norms, *other.global_norms])

    def all_gather(received: list[torch.Tensor], own: torch.Tensor) -> None:
        norm: Any = next(norms)
        received[0].copy_(own)
        received[1].copy_(torch.cat([norm.count[None], norm.mean, norm.square]))

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    update_statistics(together, first)
    update_statistics(together, mine, together=True)
    expected = alone.state_dict()
    for name, value in together.state_dict().items():
        if "norm" in name and "stack" not in name:
            torch.testing.assert_close(value, expected[name])
