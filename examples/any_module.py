"""Any nn.Module of yours: ten lines from observation to action values.

python examples/any_module.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder import EntityEncoder

SPACE = spaces.Dict(unit=spaces.Box(-1, 1, (16, 8)), unit_mask=spaces.MultiBinary(16))


class QNetwork(nn.Module):
    """Values of five actions, and how dangerous each unit is."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = EntityEncoder(SPACE, d_model=64)
        self.values = nn.Linear(self.encoder.output_dim, 5)
        self.danger = nn.Linear(self.encoder.d_model, 1)

    def forward(self, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Dict of arrays or tensors with any leading dimensions (...) to (..., 5), (..., 16)."""
        encoding = self.encoder(observation)
        units, _ = encoding.group("unit")  # (..., 16, 64), exactly 0 where absent
        return self.values(encoding.pooled), self.danger(units).squeeze(-1)


if __name__ == "__main__":
    values, danger = QNetwork()(SPACE.sample())
    print("values", values.tolist(), "danger", danger.tolist())
