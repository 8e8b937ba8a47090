"""Numbers read from an encoding: per set, per entity, and per pair of asker and entity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from entity_encoder.linear import RowLinear, row_mlp
from entity_encoder.pinning import is_capturing

__all__ = ["PerEntityHead", "PointerHead", "PooledHead", "point", "point_pairs"]

# Scores this small make the first policy nearly uniform, so that early rollouts explore.
POLICY_GAIN = 0.01


class PooledHead(nn.Module):
    """An MLP on the vector of the whole set.

    Args:
        input_dim: Width P of the pooled vector.
        output_dim: Numbers to return.
        hidden: Widths of hidden layers.
        gain: Scale of the last layer; .01 for a policy, 1 for a value.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        hidden: Sequence[int] = (),
        gain: float = POLICY_GAIN,
    ) -> None:
        super().__init__()
        self.mlp = row_mlp(input_dim, hidden, output_dim, gain=gain)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map (..., P) to (..., output_dim)."""
        out: Tensor = self.mlp(pooled)
        return out


class PerEntityHead(nn.Module):
    """An MLP on every entity together with the vector of the whole set.

    The first layer acts on the two separately and adds, so that the set's part is computed once
    per set rather than once per entity.

    Args:
        d_model: Width D of an entity.
        pooled_dim: Width P of the pooled vector.
        output_dim: Numbers to return per entity.
        hidden: Widths of hidden layers.
        gain: Scale of the last layer.
    """

    def __init__(
        self,
        d_model: int,
        pooled_dim: int,
        output_dim: int,
        *,
        hidden: Sequence[int] = (),
        gain: float = POLICY_GAIN,
    ) -> None:
        super().__init__()
        first, *rest = [*hidden, output_dim]
        scale = math.sqrt(2) if rest else gain
        self.from_entity = _linear(d_model, first, scale)
        self.from_pooled = _linear(pooled_dim, first, scale, bias=False)
        self.rest = (
            nn.Sequential(nn.ReLU(), row_mlp(first, rest[:-1], rest[-1], gain=gain))
            if rest
            else nn.Identity()
        )

    def forward(self, entities: Tensor, pooled: Tensor) -> Tensor:
        """Map (..., N, D) and (..., P) to (..., N, output_dim); absent rows hold anything."""
        out: Tensor = self.rest(self.from_entity(entities) + self.from_pooled(pooled)[..., None, :])
        return out


class PointerHead(nn.Module):
    """Score how much somebody wants each entity: a bilinear form of asker and entity.

    The entity's side needs no matrix of its own: W_q^T W_k is one matrix, and it is cheaper on the
    side of which there is less. The query's bias lets the score depend on the entity alone.

    Args:
        query_dim: Width Q of the asker: the pooled vector, or an entity.
        d_model: Width D of the entities pointed at.
        hidden: Widths of hidden layers between asker and query.
        gain: Scale of the query.
    """

    def __init__(
        self,
        query_dim: int,
        d_model: int,
        *,
        hidden: Sequence[int] = (),
        gain: float = POLICY_GAIN,
    ) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(d_model)
        self.query = row_mlp(query_dim, hidden, d_model, gain=gain)

    def forward(self, asker: Tensor, entities: Tensor) -> Tensor:
        """Map (..., Q) and (..., N, D) to (..., N); absent entities get anything."""
        return point(self.query(asker) * self.scale, entities)


def point(query: Tensor, entities: Tensor) -> Tensor:
    """Return the products of one query (..., D) with entities (..., N, D): (..., N)."""
    # Faster to train than a matrix product of this shape, and the rounding of a sum over the last
    # axis depends neither on the number of sets nor on the number of slots.
    return (query[..., None, :] * entities).sum(-1)


def point_pairs(queries: Tensor, entities: Tensor) -> Tensor:
    """Return the products of queries (..., A, D) with entities (..., T, D): (..., A, T)."""
    lead = queries.shape[:-2]
    single = math.prod(lead) == 1 and queries.device.type == "cpu" and not is_capturing()
    if single:  # a batch of one would take another kernel, with other rounding
        queries, entities = (
            x.reshape(1, *x.shape[-2:]).expand(2, -1, -1) for x in (queries, entities)
        )
    scores = torch.matmul(entities, queries.transpose(-2, -1)).transpose(-2, -1)
    return scores[0].reshape(*lead, *scores.shape[-2:]) if single else scores


def _linear(width: int, out: int, gain: float, *, bias: bool = True) -> RowLinear:
    layer = RowLinear(width, out, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
