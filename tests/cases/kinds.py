"""Two kinds of entities, and a step of learning about them in one of two processes.

A file of its own, so that the processes need not import what the tests import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from entity_encoder import EntityEncoder, EntityGroup, EntitySchema

TWO_KINDS = EntitySchema(
    (EntityGroup("unit", 3, ("a", "b"), "unit_mask"), EntityGroup("ore", 5, ("c",), "ore_mask"))
)


def two_kinds(batch: int = 4, seed: int = 0) -> dict[str, Any]:
    """Draw a batch in which everybody is present."""
    rng = np.random.default_rng(seed)
    return {
        "unit": rng.normal(size=(batch, 3, 2)).astype(np.float32),
        "unit_mask": np.ones((batch, 3)),
        "ore": rng.normal(size=(batch, 5, 1)).astype(np.float32),
        "ore_mask": np.ones((batch, 5)),
    }


def learn_in_parallel(rank: int, folder: Path) -> None:
    """Write the gradient of the second kind, of which process 1 has no entity."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    encoder = EntityEncoder(TWO_KINDS, d_model=8, n_heads=2, n_layers=1)
    parallel = DistributedDataParallel(encoder)
    observation = two_kinds(seed=rank)
    if rank == 1:
        observation["ore_mask"][:] = 0
    for _ in range(2):  # the second pass fails if a weight of the first got no gradient
        parallel.zero_grad()
        parallel(observation).pooled.square().mean().backward()
    slopes = {name: p.grad for name, p in encoder.embeddings[1].named_parameters()}
    torch.save(slopes, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()
