"""A linear layer whose result for a row does not depend on how many rows there are."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from entity_encoder.layout import ROW_MULTIPLE

__all__ = ["RowLinear"]


class RowLinear(nn.Linear):
    """`nn.Linear` on row counts padded to a multiple of 8 on the CPU.

    For a few rows GEMM takes kernels that round differently, so without the padding the logits of
    one state would depend on the size of its batch, and PPO's first ratio would not be exactly 1.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if input.device.type != "cpu" or input.requires_grad and not input.numel():
            return super().forward(input)
        lead = input.shape[:-1]
        rows = math.prod(lead)
        missing = -rows % ROW_MULTIPLE
        if not missing:
            return super().forward(input)
        flat = F.pad(input.reshape(rows, input.shape[-1]), (0, 0, 0, missing))
        return super().forward(flat)[:rows].reshape(*lead, self.out_features)
