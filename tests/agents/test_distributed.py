"""Two gloo processes must learn what one process learns from the joined batch."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from entity_encoder.agents.distributed import Ranks
from entity_encoder.agents.rollout import Batch
from entity_encoder.agents.scaling import RewardScale
from entity_encoder.agents.trees import map_tree
from entity_encoder.agents.update import Updater
from entity_encoder.normalisation import RunningNorm
from tests.agents.test_update import NOW, E, T, make_batch, make_updater, small_policy, weights

PARTS = {0: [0], 1: [1, 2]}  # environments of each rank: unequal shares
SETTINGS: dict[str, Any] = {"epochs": 3, "minibatch_size": T * E}
X = torch.arange(60.0).view(10, 3, 2) ** 1.5
SEEN = torch.tensor([[1, 1, 0], [1, 0, 1]] * 5)


def part_of(batch: Batch, envs: list[int]) -> Batch:
    """Cut the columns of some environments out of a batch."""
    rows = (torch.arange(T)[:, None] * E + torch.tensor(envs)).flatten()
    cut = {
        field.name: map_tree(lambda x: x[rows], getattr(batch, field.name))
        for field in dataclasses.fields(batch)
        if field.name not in ("state", "shape")
    }
    state = None if batch.state is None else batch.state[envs]
    return Batch(**cut, state=state, shape=(T, len(envs)))


def work(rank: int, folder: str) -> None:
    """Run in each process: join, learn, and write down what came of it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    os.environ["WORLD_SIZE"] = "2"
    ranks = Ranks.join(torch.device("cpu"))
    assert (ranks.rank, ranks.size, ranks.first) == (rank, 2, rank == 0)
    found: dict[str, Any] = {
        "total": ranks.total(torch.tensor([1.0, rank])),
        "largest": ranks.largest(5 - rank, torch.device("cpu")),
        "gathered": ranks.gather({"rank": rank}),
    }
    norm, scale = RunningNorm(2), RewardScale(1, 0.9)
    norm.update(torch.ones(4, 2))  # what all had seen before
    rows = slice(0, 3) if rank == 0 else slice(3, 10)
    ranks.update_statistics([norm], lambda: norm.update(X[rows], SEEN[rows]))
    reward = torch.arange(6.0)[:, None] + 10 * rank
    no = torch.zeros(6, 1, dtype=torch.bool)
    ranks.update_statistics([scale], lambda: scale.update(reward, no, ~no))
    found |= {"norm": norm.state_dict(), "factor": scale.factor}
    for name, options in (("plain", {}), ("recurrent", {"recurrent": 4})):
        policy = small_policy(**options)
        batch = part_of(make_batch(policy, invalid=4), PARTS[rank])
        updater = make_updater(policy, **SETTINGS)
        updater = Updater(
            policy, updater.optimiser, updater.config, torch.Generator().manual_seed(rank), ranks
        )
        metrics = updater.update(batch, NOW)
        found[name] = weights(policy)
        found[f"{name} metrics"] = {k: float(v) for k, v in metrics.items()}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    spawn(work, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize(("name", "options"), [("plain", {}), ("recurrent", {"recurrent": 4})])
def test_two_processes_learn_what_one_learns_from_the_joined_batch(
    results: list[dict[str, Any]], name: str, options: dict[str, Any]
) -> None:
    policy = small_policy(**options)
    metrics = make_updater(policy, **SETTINGS).update(make_batch(policy, invalid=4), NOW)
    for result in results:
        assert torch.allclose(result[name], weights(policy), atol=1e-6)
        for tag in ("loss/policy", "loss/value", "policy/entropy", "optimiser/gradient_norm"):
            assert result[f"{name} metrics"][tag] == pytest.approx(float(metrics[tag]), abs=1e-5)
    assert torch.equal(results[0][name], results[1][name])  # or they would drift apart


def test_statistics_are_those_of_everything_that_was_seen(results: list[dict[str, Any]]) -> None:
    norm = RunningNorm(2)
    norm.update(torch.ones(4, 2))
    norm.update(X, SEEN)
    for result in results:
        for name, value in norm.state_dict().items():
            assert torch.allclose(result["norm"][name], value, rtol=1e-12)
    returns = []
    for rank in (0, 1):
        total = 0.0
        for t in range(6):
            total = t + 10 * rank + 0.9 * total
            returns.append(total)
    deviation = torch.tensor(returns, dtype=torch.float64).std(correction=0)
    assert float(results[1]["factor"]) == pytest.approx(1 / float(deviation), rel=1e-6)


def test_sums_maxima_and_values_cross_processes(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["total"].tolist() == [2.0, 1.0]
        assert result["largest"] == 5
        assert result["gathered"] == [{"rank": 0}, {"rank": 1}]


def test_one_process_needs_no_group() -> None:
    ranks = Ranks.join(torch.device("cpu"))
    x = torch.ones(2)
    assert ranks.first
    assert ranks.total(x) is x
    assert ranks.gather(3) == [3]
