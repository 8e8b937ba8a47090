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
