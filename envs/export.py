"""What leaves an environment: torch tensors as they are, or NumPy arrays as gymnasium has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Exporter"]


class Exporter:
    """Convert batched results to the kind of output that the user asked for.

    Args:
        output: "torch" or "numpy".

    Raises:
        ValueError: For anything else.
    """

    def __init__(self, output: str) -> None:
        if output not in ("numpy", "torch"):
            raise ValueError(f"output must be 'numpy' or 'torch', got {output!r}")
        self.is_torch = output == "torch"

    def observation(self, observation: dict[str, Tensor]) -> dict[str, Any]:
        """Convert an observation; masks become int8 in NumPy, as MultiBinary samples are."""
        if self.is_torch:
            return observation
        return {key: _to_array(value) for key, value in observation.items()}

    def reward(self, reward: Tensor) -> Any:
        """Convert rewards, (E,); float64 in NumPy, as in gymnasium's own vector environments."""
        return reward if self.is_torch else reward.cpu().numpy().astype(np.float64)

    def flags(self, flags: Tensor) -> Any:
        """Convert bool flags, (E,)."""
        return flags if self.is_torch else flags.cpu().numpy()

    def infos(self, key: str, value: Tensor, mask: Tensor) -> dict[str, Any]:
        """Build an info entry and the mask that says where it means something."""
        if self.is_torch:
            return {key: value, f"_{key}": mask.clone()}  # the caller may change it
        where = mask.cpu().numpy().copy()
        return {key: np.where(where, value.cpu().numpy().astype(np.float64), 0.0), f"_{key}": where}

    def add_final(
        self, infos: dict[str, Any], observation: dict[str, Tensor], ended: Tensor
    ) -> None:
        """Add `final_obs` and `final_info` of episodes that ended in SAME_STEP mode, in place.

        Args:
            infos: What the step returns; its entries become those of `final_info` as well.
            observation: Observation before the reset.
            ended: Which environments it belongs to, (E,).
        """
        final_info = dict(infos)
        if self.is_torch:
            infos |= {"final_obs": observation, "_final_obs": ended.clone()}
            infos |= {"final_info": final_info, "_final_info": ended.clone()}
            return
        arrays = self.observation(observation)
        where = ended.cpu().numpy().copy()
        final_obs = np.full(len(where), None, dtype=object)
        for env in where.nonzero()[0]:  # gymnasium's format is one object per finished episode
            final_obs[env] = {key: value[env].copy() for key, value in arrays.items()}
        infos |= {"final_obs": final_obs, "_final_obs": where}
        infos |= {"final_info": final_info, "_final_info": where.copy()}


def _to_array(value: Tensor) -> np.ndarray:
    array = value.cpu().numpy()
    return array.view(np.int8) if value.dtype == torch.bool else array
