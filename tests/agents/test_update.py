import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.objective import Coefficients, rows_of, units_of
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.rollout import Batch
from entity_encoder.agents.update import NonFiniteError, Updater

SPACE = spaces.Dict(ship=spaces.Box(-1, 1, (5, 3), np.float32), ship_mask=spaces.MultiBinary(5))
NOW = Coefficients(learning_rate=1e-2, clip_range=0.2, entropy=0.01)
T, E = 7, 3


def small_policy(**options: Any) -> EntityPolicy:
    torch.manual_seed(0)
    return EntityPolicy(SPACE, spaces.Discrete(4), d_model=8, n_heads=2, n_layers=1, **options)


def make_batch(policy: EntityPolicy, *, invalid: int = 0) -> Batch:
    """Let the policy act on random observations; advantages and targets are random."""
    g = torch.Generator().manual_seed(1)
    size = T * E
    observation = {
        "ship": torch.randn(size, 5, 3, generator=g),
        "ship_mask": torch.rand(size, 5, generator=g) < 0.5,
    }
    begins = torch.rand(T, E, generator=g) < 0.3
    state = policy.initial_state(E)
    with torch.no_grad():
        if state is None:
            output = policy(observation)
        else:
            sequence = {key: x.unflatten(0, (T, E)) for key, x in observation.items()}
            output = policy(sequence, state=state, begins=begins)
        action = output.distribution.sample(g)
        log_prob = output.distribution.log_prob(action).flatten()
    valid = torch.ones(size, dtype=torch.bool)
    valid[torch.randperm(size, generator=g)[:invalid]] = False
    return Batch(
        observation=observation,
        action=action.flatten(),
        log_prob=log_prob,
        value=output.value.flatten(),
        advantage=torch.randn(size, generator=g),
        target=torch.randn(size, generator=g),
        valid=valid,
        begins=begins.flatten(),
        count=observation["ship_mask"].sum(1),
        state=state,
        shape=(T, E),
    )


def make_updater(policy: EntityPolicy, **settings: Any) -> Updater:
    config = PPOConfig(**{"num_envs": E, "rollout_steps": T, **settings})
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.0)
    return Updater(policy, optimiser, config, torch.Generator().manual_seed(2))


def weights(policy: EntityPolicy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def test_one_step_equals_plain_ppo_written_in_six_lines() -> None:
    policy, copy = small_policy(), small_policy()
    batch = make_batch(policy, invalid=4)
    batch.log_prob = batch.log_prob + 0.4 * torch.randn(T * E)  # ratios on both sides of the clip
    settings = {"epochs": 1, "minibatch_size": T * E, "max_grad_norm": 1e9, "value_clip_range": 0.1}
    metrics = make_updater(policy, **settings).update(batch, NOW)

    v = batch.valid
    observation = {key: x[v] for key, x in batch.observation.items()}
    a = batch.advantage[v]
    a = (a - a.mean()) / (a.std(correction=0) + 1e-8)
    output = copy(observation)
    ratio = torch.exp(output.distribution.log_prob(batch.action[v]) - batch.log_prob[v])
    pg = torch.max(-a * ratio, -a * ratio.clamp(0.8, 1.2)).mean()
    old, target = batch.value[v], batch.target[v]
    near = old + (output.value - old).clamp(-0.1, 0.1)
    vl = 0.5 * torch.max((output.value - target) ** 2, (near - target) ** 2).mean()
    entropy = output.distribution.entropy().mean()
    (pg + 0.5 * vl - 0.01 * entropy).backward()
    with torch.no_grad():
        for p in copy.parameters():
            if p.grad is not None:
                p.sub_(1e-2 * p.grad)
    assert torch.allclose(weights(policy), weights(copy), atol=1e-7)
    assert float(metrics["loss/policy"]) == pytest.approx(float(pg.detach()), abs=1e-6)
    assert float(metrics["loss/value"]) == pytest.approx(float(vl.detach()), abs=1e-6)
    assert float(metrics["policy/entropy"]) == pytest.approx(float(entropy.detach()), abs=1e-6)
    k3 = (ratio - 1 - ratio.log()).mean()
    assert float(metrics["policy/kl"]) == pytest.approx(float(k3.detach()), abs=1e-6)
    clipped = float(((ratio - 1).abs() > 0.2).float().mean())
    assert float(metrics["policy/clip_fraction"]) == pytest.approx(clipped, abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"recurrent": 4}])
def test_chunks_give_the_gradient_of_the_whole_minibatch(options: dict[str, Any]) -> None:
    results = []
    for chunk in (1, 9, 10_000):
        policy = small_policy(**options)
        updater = make_updater(policy, chunk_entities=chunk, epochs=2, minibatch_size=14)
        updater.update(make_batch(policy, invalid=3), NOW)
        results.append(weights(policy))
    assert torch.allclose(results[0], results[2], atol=1e-6)
    assert torch.allclose(results[1], results[2], atol=1e-6)
    assert not torch.allclose(results[0], weights(small_policy(**options)), atol=1e-4)


def test_every_sample_is_encoded_once_per_epoch() -> None:
    policy = small_policy()
    batch = make_batch(policy, invalid=4)
    rows: list[int] = []
    hook = policy.encoder.register_forward_hook(
        lambda _, inputs, __: rows.append(len(inputs[0]["ship"]))
    )
    make_updater(policy, epochs=3, minibatch_size=5, chunk_entities=6).update(batch, NOW)
    hook.remove()
    assert sum(rows) == 3 * (T * E - 4)


@pytest.mark.parametrize("options", [{}, {"recurrent": 4}, {"separate_critic": True}])
def test_without_learning_every_ratio_is_exactly_one(options: dict[str, Any]) -> None:
    policy = small_policy(**options)
    still = dataclasses.replace(NOW, learning_rate=0.0)
    for size in (1, 7, T * E):
        updater = make_updater(policy, minibatch_size=size, chunk_entities=8)
        metrics = updater.update(make_batch(policy, invalid=4), still)
        assert float(metrics["policy/log_ratio_max"]) == 0.0
        assert float(metrics["policy/first_ratio_error"]) == 0.0
        assert float(metrics["policy/kl"]) == 0.0


@pytest.mark.parametrize("options", [{}, {"recurrent": 4}])
def test_rows_that_only_reset_leave_no_trace(options: dict[str, Any]) -> None:
    results = []
    for junk in (0.0, math.nan):
        policy = small_policy(**options)
        batch = make_batch(policy, invalid=5)
        for name in ("advantage", "target", "log_prob"):
            setattr(batch, name, torch.where(batch.valid, getattr(batch, name), junk))
        make_updater(policy, minibatch_size=10).update(batch, NOW)
        results.append(weights(policy))
    assert torch.equal(*results)


def test_the_update_ends_after_the_epoch_that_went_too_far() -> None:
    policy = small_policy()
    big = dataclasses.replace(NOW, learning_rate=3.0)
    metrics = make_updater(policy, epochs=5, target_kl=1e-4).update(make_batch(policy), big)
    assert metrics["optimiser/epochs"] < 5
    assert float(metrics["policy/kl"]) > 1e-4
    metrics = make_updater(policy, epochs=5).update(make_batch(policy), NOW)
    assert metrics["optimiser/epochs"] == 5


def test_gradients_are_scaled_down_to_the_limit() -> None:
    policy = small_policy()
    before = weights(policy)
    updater = make_updater(policy, epochs=1, minibatch_size=T * E, max_grad_norm=1e-3)
    metrics = updater.update(make_batch(policy), NOW)
    assert float(metrics["optimiser/gradient_norm"]) > 1e-3  # before clipping
    assert float((weights(policy) - before).norm()) == pytest.approx(1e-2 * 1e-3, rel=1e-2)


@pytest.mark.parametrize(("field", "term"), [("target", "loss/value"), ("log_prob", "loss/policy")])
def test_a_loss_that_is_not_finite_names_term_and_parameter(field: str, term: str) -> None:
    policy = small_policy()
    batch = make_batch(policy)
    getattr(batch, field)[5] = math.nan
    before = weights(policy)
    updater = make_updater(policy, minibatch_size=T * E)
    with pytest.raises(
        NonFiniteError, match=rf"{term} must be finite, got nan, first in the gradient of '\w+\."
    ):
        updater.update(batch, NOW)
    assert torch.equal(weights(policy), before)


def test_advantages_are_used_as_they_are_on_request() -> None:
    policy = small_policy()
    batch = make_batch(policy)
    still = dataclasses.replace(NOW, learning_rate=0.0)
    updater = make_updater(policy, normalise_advantages=False, epochs=1, minibatch_size=T * E)
    metrics = updater.update(batch, still)
    # all ratios are 1: the loss is minus the mean advantage
    assert float(metrics["loss/policy"]) == pytest.approx(-float(batch.advantage.mean()), abs=1e-6)


def test_sequences_are_cut_out_environment_by_environment() -> None:
    batch = make_batch(small_policy(recurrent=4))
    assert units_of(batch, masked=False).tolist() == [0, 1, 2]
    rows = rows_of(batch, torch.tensor([2, 0])).view(T, 2)
    assert rows[0].tolist() == [2, 0]
    assert rows[1].tolist() == [5, 3]
