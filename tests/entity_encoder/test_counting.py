"""The number of entities as an input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entity_encoder import EntityEncoder, EntityGroup, EntitySchema
from entity_encoder.counting import COUNT_EDGES, SetCounts


def masks_of(*counts: int, slots: int = 40) -> torch.Tensor:
    return torch.arange(slots) < torch.tensor(counts)[:, None]


def test_each_number_up_to_ten_switches_an_input_of_its_own_on() -> None:
    encoded = SetCounts(1)([masks_of(*range(11))], torch.float32)
    expected = np.tri(11, 14, k=-1)  # row n: n ones, then zeros
    np.testing.assert_array_equal(encoded.numpy(), expected)


def test_larger_numbers_share_inputs_and_very_large_ones_look_alike() -> None:
    encoded = SetCounts(1)([masks_of(11, 14, 20, 32, 40)], torch.float32).numpy()
    expected = np.array([[0.5, 0, 0, 0], [1, 0.5, 0, 0], [1, 1, 0.5, 0], [1] * 4, [1] * 4])
    np.testing.assert_allclose(encoded[:, 10:], expected)


def test_the_sum_over_the_gaps_gives_the_number_back() -> None:
    gaps = torch.tensor(COUNT_EDGES).diff().float()
    encoded = SetCounts(2)([masks_of(3, 32), masks_of(17, 0)], torch.float32)
    torch.testing.assert_close(
        encoded.unflatten(1, (2, -1)) @ gaps, torch.tensor([[3.0, 17.0], [32.0, 0.0]])
    )


@pytest.mark.parametrize("seen", [4, 12])
def test_numbers_beyond_those_in_training_look_like_the_largest_seen(seen: int) -> None:
    # A policy trained on up to 4 must not meet random weights at 12: the gaps from 4 on got no
    # gradient, and began at zero.
    torch.manual_seed(0)
    schema = EntitySchema((EntityGroup("bean", 40, (), "bean_mask"),))
    encoder = EntityEncoder(schema, d_model=8, n_heads=2, n_layers=1, count_feature=True)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.05)
    for _ in range(5):
        masks = masks_of(*range(1, seen + 1))
        loss = (encoder({"bean": torch.zeros(seen, 40, 0), "bean_mask": masks}).pooled.sum(1)
                - torch.arange(seen)).square().mean()  # fmt: skip
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    masks = masks_of(1, seen, 32)
    with torch.no_grad():
        out = encoder({"bean": torch.zeros(3, 40, 0), "bean_mask": masks}).pooled
    torch.testing.assert_close(out[1], out[2])
    assert not torch.allclose(out[0], out[1])
