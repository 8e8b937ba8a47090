"""Claims about embedding one kind of entity."""

from __future__ import annotations

import torch

from entity_encoder import EntityGroup
from entity_encoder.embedding import GroupEmbedding


def test_columns_and_tables_add_up_to_the_embedding() -> None:
    torch.manual_seed(0)
    group = EntityGroup(
        "tank",
        3,
        ("kind", "hp", "there", "team", "fuel"),
        presence="there",
        categories=(("kind", 3), ("team", 2)),
    )
    embed = GroupEmbedding(group, 7)
    assert embed.linear is not None
    x = torch.tensor([[2.0, 0.5, 1.0, 1.0, -4.0], [0.0, 3.0, 1.0, 0.0, 6.0]])
    for row, out in zip(x, embed(x), strict=True):
        expected = embed.kind + embed.linear.weight @ row[[1, 4]]
        expected = expected + embed.tables[0].weight[int(row[0])]  # type: ignore[index]
        expected = expected + embed.tables[1].weight[int(row[3])]  # type: ignore[index]
        torch.testing.assert_close(out, expected)


def test_an_entity_without_columns_is_its_kind() -> None:
    embed = GroupEmbedding(EntityGroup("beacon", 3, (), "mask"), 5)
    assert torch.equal(embed(torch.zeros(2, 3, 0)), embed.kind.expand(2, 3, 5))
    assert [name for name, _ in embed.named_parameters()] == ["kind"]


def test_kinds_start_different() -> None:
    torch.manual_seed(0)
    first, second = (GroupEmbedding(EntityGroup("a", 3, (), "mask"), 5) for _ in range(2))
    assert not torch.allclose(first.kind, second.kind)
