"""Static memory and masks as CUDA graphs need them, run on CPU tensors; capture needs a GPU."""

from typing import Any

import pytest
import torch

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.collect import Collector
from entity_encoder.agents.cuda_graphs import Captured
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.update import Updater
from tests.agents.test_update import (
    NOW,
    E,
    T,
    make_batch,
    make_updater,
    small_policy,
    weights,
)
from tests.cases.toys import counters


def test_inputs_are_copied_into_memory_that_stays() -> None:
    seen: list[int] = []

    def double(tree: dict[str, torch.Tensor]) -> torch.Tensor:
        seen.append(tree["x"].data_ptr())
        return tree["x"] * 2

    call = Captured(double)
    for value in (1.0, 3.0):
        assert call({"x": torch.full((2,), value)}).tolist() == [2 * value] * 2
    assert seen[0] == seen[1]
    with pytest.raises(ValueError, match=r"must keep their shapes, got \(3,\) after \(2,\)"):
        call({"x": torch.zeros(3)})


def captured_updater(policy: EntityPolicy, **settings: Any) -> Updater:
    config = PPOConfig(**{"num_envs": E, "rollout_steps": T, **settings})
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.0)
    generator = torch.Generator().manual_seed(2)
    return Updater(policy, optimiser, config, generator, captured=True)


@pytest.mark.parametrize("options", [{}, {"recurrent": 4}])
def test_static_updates_equal_ordinary_ones(options: dict[str, Any]) -> None:
    settings = {"epochs": 3, "minibatch_size": T * E, "target_kl": 5.0}
    results = []
    for make in (make_updater, captured_updater):
        policy = small_policy(**options)
        updater = make(policy, **settings)
        batch = make_batch(policy, invalid=4)
        for _ in range(2):  # the second time the memory is used again
            metrics = updater.update(batch, NOW)
        results.append((weights(policy), metrics))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
    for tag, value in results[0][1].items():
        assert float(results[1][1][tag]) == pytest.approx(float(value), abs=1e-5), tag


def test_rows_that_only_reset_are_masked_whatever_they_hold() -> None:
    results = []
    for junk in (0.0, float("nan")):
        policy = small_policy()
        batch = make_batch(policy, invalid=5)
        for name in ("advantage", "target", "log_prob"):
            setattr(batch, name, torch.where(batch.valid, getattr(batch, name), junk))
        captured_updater(policy, minibatch_size=10).update(batch, NOW)
        results.append(weights(policy))
    assert torch.equal(*results)
    assert torch.isfinite(results[0]).all()


def test_minibatches_of_two_sizes_have_a_graph_each() -> None:
    policy = small_policy()
    updater = captured_updater(policy, minibatch_size=10, epochs=1)  # 21 rows: 7, 7, 7
    updater.update(make_batch(policy), NOW)
    assert sorted(updater._graphs) == [7]
    updater = captured_updater(policy, minibatch_size=11, epochs=1)  # 11 and 10
    updater.update(make_batch(policy), NOW)
    assert sorted(updater._graphs) == [10, 11]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("options", [{}, {"recurrent": 4}])
def test_captured_rollouts_equal_ordinary_ones(mode: str, options: dict[str, Any]) -> None:
    results = []
    for captured in (False, True):
        envs = Environments(counters([3, 2], mode, truncates=True))
        envs.reset(seed=0)
        torch.manual_seed(0)
        policy = EntityPolicy(
            envs.schema, envs.action_space, d_model=8, n_heads=2, n_layers=1, **options
        )
        generator = torch.Generator().manual_seed(1)
        collector = Collector(policy, envs, 5, generator, captured=captured)
        collector.collect()
        results.append(collector.collect())
    for name in ("action", "log_prob", "value", "next_value", "reward", "valid"):
        assert torch.equal(getattr(results[0], name), getattr(results[1], name)), name


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("bfloat16", "bfloat16 must be off on cpu, got True: it is several times slower"),
        ("compile", "compile must be off on cpu, got True: on a CPU it takes minutes"),
        ("cuda_graphs", "cuda_graphs must be off on cpu, got True: only CUDA has graphs"),
    ],
)
def test_what_only_cuda_gains_from_is_refused_on_a_cpu(setting: str, reason: str) -> None:
    config = PPOConfig.from_dict({"device": "cpu", setting: True})
    with pytest.raises(ValueError, match=reason):
        PPO("Entity/FloorIsLava-v0", config)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"cuda_graphs": True}, {"bfloat16": True}])
def test_training_runs_on_cuda(settings: dict[str, Any]) -> None:
    config = PPOConfig(
        total_steps=4096, num_envs=64, rollout_steps=16, d_model=32, device="cuda", **settings
    )
    agent = PPO("Entity/FloorIsLava-v0", config, progress=False).learn()
    assert all(torch.isfinite(p).all() for p in agent.policy.parameters())
