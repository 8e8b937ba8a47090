"""Claims about scores read from an encoding."""

from __future__ import annotations

import pytest
import torch

from entity_encoder.heads import PerEntityHead, PointerHead, PooledHead
from entity_encoder.heads.scores import point_pairs


@pytest.mark.parametrize("hidden", [(), (13, 5)])
def test_pooled_scores_start_small_and_have_the_width_asked_for(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    pooled = torch.randn(7, 11)
    policy, value = PooledHead(11, 3, hidden=hidden), PooledHead(11, 1, hidden=hidden, gain=1.0)
    assert policy(pooled).shape == (7, 3)
    assert value(pooled).shape == (7, 1)
    assert policy(pooled).abs().max() < 0.2
    assert value(pooled).abs().max() > 0.2


@pytest.mark.parametrize("hidden", [(), (13,), (13, 5)])
def test_per_entity_scores_depend_on_entity_and_set_alone(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    head = PerEntityHead(7, 11, 3, hidden=hidden, gain=1.0)
    entities, pooled = torch.randn(5, 4, 7), torch.randn(5, 11)
    out = head(entities, pooled)
    assert out.shape == (5, 4, 3)
    assert torch.equal(head(entities[2], pooled[2]), out[2])
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(head(entities[:, order], pooled), out[:, order])
    assert not torch.equal(head(entities, pooled + 1), out)


def test_a_pointer_is_a_bilinear_form() -> None:
    torch.manual_seed(3)
    head = PointerHead(11, 7, gain=1.0)
    asker, entities = torch.randn(5, 11), torch.randn(5, 4, 7)
    layer = head.query[0]
    weight, bias = (p.detach().double() for p in layer.parameters())
    query = asker.double() @ weight.T + bias
    expected = torch.einsum("bd,bnd->bn", query, entities.double()) / 7**0.5
    torch.testing.assert_close(head(asker, entities).double(), expected, atol=1e-6, rtol=1e-5)


def test_pointer_scores_are_bitwise_independent_of_batch_and_slots() -> None:
    torch.manual_seed(4)
    head = PointerHead(11, 32, hidden=(13,))
    asker, entities = torch.randn(37, 11), torch.randn(37, 9, 32)
    scores = head(asker, entities)
    for rows in (1, 2, 3, 8):
        assert torch.equal(head(asker[:rows], entities[:rows]), scores[:rows])
        assert torch.equal(head(asker[:rows], entities[:rows, :5]), scores[:rows, :5])


@pytest.mark.parametrize(("askers", "targets"), [(1, 3), (5, 7), (8, 16), (3, 1)])
def test_pair_scores_are_products_and_bitwise_independent_of_the_batch(
    askers: int, targets: int
) -> None:
    torch.manual_seed(askers)
    queries, entities = torch.randn(37, askers, 32), torch.randn(37, targets, 32)
    scores = point_pairs(queries, entities)
    expected = torch.einsum("bad,btd->bat", queries.double(), entities.double())
    torch.testing.assert_close(scores.double(), expected, atol=1e-5, rtol=1e-5)
    for rows in (1, 2, 8):
        assert torch.equal(point_pairs(queries[:rows], entities[:rows]), scores[:rows])
    assert torch.equal(point_pairs(queries[0], entities[0]), scores[0])
    nested = point_pairs(queries[:6].view(3, 2, askers, 32), entities[:6].view(3, 2, targets, 32))
    assert torch.equal(nested.flatten(0, 1), scores[:6])


@pytest.mark.parametrize("lead", [(0,), (3, 0)])
def test_no_sets_work(lead: tuple[int, ...]) -> None:
    assert PointerHead(11, 8)(torch.zeros(*lead, 11), torch.zeros(*lead, 4, 8)).shape == (*lead, 4)
    pairs = point_pairs(torch.zeros(*lead, 2, 8), torch.zeros(*lead, 3, 8))
    assert pairs.shape == (*lead, 2, 3)
    assert point_pairs(torch.zeros(2, 0, 8), torch.zeros(2, 3, 8)).shape == (2, 0, 3)
