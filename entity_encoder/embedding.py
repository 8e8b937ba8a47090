"""From the raw columns of each kind of entity to one width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entity_encoder.columns import column_index
from entity_encoder.linear import RowLinear
from entity_encoder.schema import EntityGroup

__all__ = ["GroupEmbedding"]


class GroupEmbedding(nn.Module):
    """Embed the entities of one group.

    Numeric columns go through a linear layer whose bias is the group's type embedding; integer
    columns are looked up in tables; the results are added. A group without columns is its type
    embedding.

    Args:
        group: Names the columns.
        d_model: Output width D.
    """

    def __init__(self, group: EntityGroup, d_model: int) -> None:
        super().__init__()
        names = [name for name, _ in group.categories]
        if group.presence is not None:  # always 1 where it is read
            names = [*names, group.presence]
        self.numeric = [i for i, name in enumerate(group.features) if name not in names]
        self.categorical = group.columns([name for name, _ in group.categories])
        self.kind = nn.Parameter(torch.randn(d_model) * 0.1)
        self.linear = RowLinear(len(self.numeric), d_model, bias=False) if self.numeric else None
        self.tables = nn.ModuleList(nn.Embedding(count, d_model) for _, count in group.categories)
        self.all_numeric = len(self.numeric) == len(group.features)

    def forward(self, x: Tensor) -> Tensor:
        """Embed (..., F) rows to (..., D)."""
        out = self.kind.to(x.dtype).expand(*x.shape[:-1], -1)
        if self.linear is not None:
            columns = x if self.all_numeric else x.index_select(-1, column_index(self.numeric, x))
            out = out + self.linear(columns)
        for column, table in zip(self.categorical, self.tables, strict=True):
            # Absent rows of a dense layout hold zeros, present ones were checked.
            out = out + table(x[..., column].long())
        return out
