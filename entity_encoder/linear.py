"""Linear layers whose result for a row does not depend on how many rows there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entity_encoder.layout import ROW_MULTIPLE
from entity_encoder.pinning import is_capturing

__all__ = ["RowLinear", "row_mlp"]


# Fewer outputs than this, and an input width off the multiple of 4, make GEMM round a row by its
# place in a block of rows (every combination up to 66 inputs was tried on AVX2).
FEW_OUTPUTS = 12
WIDTH_MULTIPLE = 4


class RowLinear(nn.Linear):
    """`nn.Linear` whose result for a row is bitwise the same alone and anywhere in any batch.

    Promised for fp32 on the CPU, where row counts are padded to a multiple of 16. For a few rows
    GEMM takes kernels that round differently, so without the padding the logits of one state
    would depend on the size of its batch, and PPO's first ratio would not be exactly 1.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.Linear gives it)
        """Map (..., in_features) to (..., out_features)."""
        if input.device.type != "cpu" or is_capturing():  # captured shapes are symbols or fixed
            return super().forward(input)
        lead, width = input.shape[:-1], input.shape[-1]
        rows = math.prod(lead)
        missing = -rows % ROW_MULTIPLE
        wider = -width % WIDTH_MULTIPLE if self.out_features < FEW_OUTPUTS else 0
        if not (missing or wider):
            return super().forward(input)
        flat = F.pad(input.reshape(rows, width), (0, wider, 0, missing))
        weight = F.pad(self.weight, (0, wider)) if wider else self.weight
        return F.linear(flat, weight, self.bias)[:rows].reshape(*lead, self.out_features)


@torch.no_grad()
def row_mlp(
    in_features: int,
    hidden: Sequence[int],
    out_features: int,
    *,
    gain: float = 1.0,
    activation: type[nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Build an MLP of `RowLinear` layers, orthogonally initialised.

    Args:
        in_features: Width of the input.
        hidden: Widths of the hidden layers; none makes it one linear layer.
        out_features: Width of the output.
        gain: Scale of the last layer; .01 makes a policy start near uniform.
        activation: Module class between layers.
    """
    widths = [in_features, *hidden, out_features]
    layers: list[nn.Module] = []
    for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
        layer = RowLinear(inner, outer)
        last = i == len(hidden)
        nn.init.orthogonal_(layer.weight, gain if last else math.sqrt(2))
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, activation()]
    return nn.Sequential(*layers)
