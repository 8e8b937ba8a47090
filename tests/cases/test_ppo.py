"""Failure cases PPO-01 to PPO-43, and the check sketches O8 to O16 that belong to them.

Expected numbers were derived by hand or by an independent formula; each stands beside its case.
"""

from __future__ import annotations

import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.agents import PPO, EntityPolicy, Environments, PPOConfig, load_policy
from entity_encoder.agents.checkpoint import load_checkpoint, unwrapped_names
from entity_encoder.agents.losses import value_loss
from entity_encoder.agents.saved import restore_weights
from entity_encoder.agents.schedules import scheduled
from entity_encoder.distributions import (
    Composite,
    DiagonalGaussian,
    MaskedCategorical,
    MaskedMultiCategorical,
)
from entity_encoder.normalisation import RunningNorm
from tests.cases.adapter import A, train
from tests.cases.toys import Toy, counters

ENTITIES = spaces.Dict(
    unit=spaces.Box(-np.inf, np.inf, (5, 3), np.float32),
    unit_mask=spaces.MultiBinary(5),
    action_mask=spaces.MultiBinary(3),
)


def column(values: list[float]) -> np.ndarray:
    return np.asarray(values, float)[:, None]


def flags(values: list[int]) -> np.ndarray:
    return np.asarray(values, bool)[:, None]


def small_policy(action_space: spaces.Space[Any], space: spaces.Dict = ENTITIES) -> EntityPolicy:
    torch.manual_seed(0)
    return EntityPolicy(space, action_space, d_model=8, n_heads=2, n_layers=1)


# --- advantages -----------------------------------------------------------------------------


def test_ppo_01_a_time_limit_is_no_death() -> None:
    # r = 1, gamma .9, lambda .8, truncated at t = 1 with V(final) = 3:
    # A_1 = 1 + .9*3 - .6 = 3.1, A_0 = 1 + .9*.6 - .5 + .72*3.1 = 3.272
    r, v = column([1, 1, 1, 1]), column([0.5, 0.6, 0.7, 0.8])
    none, end = flags([0, 0, 0, 0]), flags([0, 1, 0, 0])
    a = A.gae(r, v, none, end, column([0.6, 3.0, 0.8, 2.0]), 0.9, 0.8)
    assert np.ravel(a) == pytest.approx([3.272, 3.1, 2.46, 2.0], abs=1e-6)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_ppo_03_bootstrap_comes_from_the_final_observation(mode: str) -> None:
    # The final observation of an episode of 3 steps counts 3; the reset observation counts 0.
    d = A.collect(counters([3, 2], mode, truncates=True), 7)
    ended = d["trunc"]
    assert ended.any()
    assert (d["next_obs_t"][ended] == np.broadcast_to([3, 2], ended.shape)[ended]).all()


def test_ppo_04_a_terminal_state_has_no_future() -> None:
    # terminated at t = 1: A_1 = 1 - .6 = .4, A_0 = 1 + .9*.6 - .5 + .72*.4 = 1.328
    r, v = column([1, 1, 1, 1]), column([0.5, 0.6, 0.7, 0.8])
    none, end = flags([0, 0, 0, 0]), flags([0, 1, 0, 0])
    for ignored in (99.0, math.nan):
        a = A.gae(r, v, end, none, column([0.6, ignored, 0.8, 2.0]), 0.9, 0.8)
        assert np.ravel(a) == pytest.approx([1.328, 0.4, 2.46, 2.0], abs=1e-6)


def test_ppo_06_the_step_that_only_resets_is_no_transition() -> None:
    d = A.collect(counters([3, 3], "NEXT_STEP"), 8)
    assert d["valid"].T.tolist() == [[1, 1, 1, 0, 1, 1, 1, 0]] * 2
    ok = d["valid"].astype(bool)
    assert (d["next_obs_t"][ok] == d["obs_t"][ok] + 1).all()  # no pair crosses a reset
    assert d["reward"][ok].sum() == 2 * (1 + 2 + 3) * 2
    assert ok.sum() == 12


def test_ppo_07_every_autoreset_mode_gives_the_same_transitions() -> None:
    found = {}
    for mode in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        d = A.collect(counters([3, 2, 1], mode), 24)
        for env, length in enumerate([3, 2, 1]):
            ok = d["valid"][:, env].astype(bool)
            pairs = list(zip(d["obs_t"][ok, env], d["reward"][ok, env], strict=True))[:6]
            expected = [(i % length, i % length + 1) for i in range(6)]
            assert pairs == expected
        found[mode] = set(A.episode_log(counters([3, 2, 1], mode), 24))
    assert found["NEXT_STEP"] == found["SAME_STEP"] == found["DISABLED"]
    assert found["SAME_STEP"] == {(3, 6.0), (2, 3.0), (1, 1.0)}


def test_ppo_07_an_unknown_autoreset_mode_is_refused() -> None:
    env = counters([2])
    env.metadata = {**env.metadata, "autoreset_mode": "SOMETIMES"}
    with pytest.raises(ValueError, match="autoreset_mode of SyncVectorEnv must be one of"):
        Environments(env)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_ppo_07_advantages_equal_those_of_separate_episodes(mode: str) -> None:
    # Invariant 6: explicit sums over episodes that were cut apart, in every mode.
    from tests.cases.adapter import rollout

    done, envs = rollout(counters([3, 2, 1], mode, truncates=True), 11)
    gamma, lam = 0.9, 0.8
    policy = small_policy(envs.action_space, envs.observation_space)
    index, final, _ = done.finals()
    with torch.no_grad():
        values = policy.value(done.observation)
        done.value.copy_(values)
        done.bootstrap(index, policy.value(final))
    count = torch.ones_like(done.valid, dtype=torch.int64)
    batch = done.batch(gamma=gamma, gae_lambda=lam, reward_scale=1.0, count=count)
    got = batch.advantage.view(batch.shape)

    def value_of(counted: int) -> float:
        observation = {
            "entities": torch.tensor([[[float(counted)], [0.0]]]),
            "mask": torch.tensor([[True, False]]),
        }
        with torch.no_grad():
            return float(policy.value(observation))

    for env, length in enumerate([3, 2, 1]):
        rows = [t for t in range(11) if done.valid[t, env]]
        for first in range(0, len(rows) - length + 1, length):
            expected = [0.0] * (length + 1)
            for k in reversed(range(length)):
                delta = (k + 1) + gamma * value_of(k + 1) - value_of(k)
                expected[k] = delta + gamma * lam * expected[k + 1]
            piece = [float(got[t, env]) for t in rows[first : first + length]]
            assert piece == pytest.approx(expected[:length], abs=1e-4)
    assert (got[~done.valid] == 0).all()


@pytest.mark.parametrize("values", [[1.7], [2.0, 2.0, 2.0], [0.0], [0.1] * 7])
def test_ppo_10_one_sample_or_equal_ones_become_zero(values: list[float]) -> None:
    assert (A.normalise_adv(np.array(values, np.float32)) == 0).all()


def test_ppo_10_normalised_advantages_by_hand() -> None:
    # mean 12, population standard deviation sqrt(8/3)
    y = A.normalise_adv(np.array([10, 12, 14], np.float32))
    assert y == pytest.approx([-1.2247449, 0, 1.2247449], abs=1e-5)


def test_ppo_10_no_minibatch_is_a_crumb() -> None:
    from entity_encoder.agents.minibatches import minibatch_count, shuffled

    index = torch.arange(100, 109)
    parts = list(shuffled(index, minibatch_count(9, 4), torch.Generator().manual_seed(0)))
    assert sorted(len(part) for part in parts) == [3, 3, 3]
    assert sorted(torch.cat(parts).tolist()) == list(range(100, 109))


# --- distributions --------------------------------------------------------------------------


def test_ppo_12_no_legal_action_names_the_environment() -> None:
    policy = small_policy(spaces.Discrete(3))
    observation = {
        "unit": torch.zeros(4, 5, 3),
        "unit_mask": torch.ones(4, 5),
        "action_mask": torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]]),
    }
    with pytest.raises(ValueError, match=r"legal.*environment 2"):
        policy.act(observation)
    active = torch.tensor([True, True, False, True])
    choice = policy.act(observation, active=active)
    assert float(choice.log_prob[2]) == 0.0


def test_ppo_13_entropy_with_an_illegal_action_is_log_two() -> None:
    d = A.dist(torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([[1, 1, 0]], dtype=torch.bool))
    assert float(d.entropy()) == pytest.approx(math.log(2), abs=1e-6)
    assert float(d.probs[0, 2]) == 0.0
    x = torch.tensor([[0.3, 0.1, 2.0]], requires_grad=True)
    e = A.dist(x, torch.tensor([[1, 1, 0]], dtype=torch.bool)).entropy().sum()
    e.backward()
    assert float(e.detach()) == pytest.approx(0.68817207, abs=1e-6)
    assert x.grad is not None
    assert x.grad[0].tolist() == pytest.approx([-0.04950330, 0.04950330, 0.0], abs=1e-6)


def test_ppo_15_illegal_actions_have_probability_exactly_zero() -> None:
    d = A.dist(torch.tensor([[-3.0, -2.0, 5.0]]), torch.tensor([[1, 1, 0]]))
    assert float(d.probs[0, 2]) == 0.0  # multiplying the logit by the mask gives .844


class OneLegal(Toy):
    """Half of the states leave a single legal action; an illegal one is an error."""

    def __init__(self) -> None:
        super().__init__()
        seen = self.observation_space.spaces
        self.observation_space = spaces.Dict({**seen, "action_mask": spaces.MultiBinary(3)})

    def _observe(self) -> dict[str, Any]:
        observation = super()._observe()
        self.legal = np.ones(3, np.int8)
        if self.time % 2:
            self.legal[:] = np.eye(3, dtype=np.int8)[self.time % 3]
        return {**observation, "action_mask": self.legal}

    def step(self, action: Any) -> Any:
        if not self.legal[action]:
            raise RuntimeError(f"illegal action {action}")
        return super().step(action)


def test_ppo_18_masks_are_stored_with_the_transition() -> None:
    done = train(OneLegal, 2, seed=1, lr=0.0, minibatch=7)
    assert max(done["log_ratio_absmax"]) == 0.0
    rollout = done["agent"].collector._rollout
    forced = rollout.observation["action_mask"].sum(-1) == 1
    assert forced.any()
    assert (rollout.log_prob[forced] == 0).all()


def test_ppo_19_evaluation_uses_the_mask_of_the_observation() -> None:
    agent = train(OneLegal, 1, seed=1)["agent"]
    result = agent.evaluate(100, env=[OneLegal] * 7)
    assert len(result.episodes) == 100


def test_ppo_20_the_mode_is_an_index_into_all_actions() -> None:
    d = A.dist(torch.tensor([[0.0, 1.0, 10.0, 2.0]]), torch.tensor([[1, 0, 1, 0]]))
    assert int(d.mode()) == 2
    assert torch.isfinite(d.log_prob(d.mode())).all()


def test_ppo_21_padded_actors_change_no_mean() -> None:
    # Three actors, two in row 0 and one in row 1: the loss divides by rows, never by slots, and
    # absent actors add exactly nothing to the sum.
    logits = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    active = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    action = torch.tensor([[0, 1, 2, 2], [2, 0, 0, 0]])
    joint = MaskedMultiCategorical(logits, active=active).log_prob(action)
    each = torch.log_softmax(logits, -1)
    expected = torch.stack([each[0, 0, 0] + each[0, 1, 1], each[1, 0, 2]])
    assert torch.allclose(joint, expected)
    poisoned = torch.where(active[..., None], logits, torch.nan)
    assert torch.equal(MaskedMultiCategorical(poisoned, active=active).log_prob(action), joint)


def test_ppo_22_dropout_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dropout must be 0 for PPO, got 0\.1"):
        PPOConfig(dropout=0.1)


# --- losses ---------------------------------------------------------------------------------


def test_ppo_25_kl_by_hand_and_never_negative() -> None:
    assert A.approx_kl(torch.tensor([0.1, -0.3, 0.2])) == pytest.approx(0.02246398, abs=1e-6)
    assert A.approx_kl(torch.zeros(5)) == 0.0


def test_ppo_26_clipping_never_forgives_a_bad_action() -> None:
    r = torch.log(torch.tensor([1.5, 5.0, 0.5, 0.5]))
    adv = torch.tensor([1.0, -1.0, 2.0, -0.5])
    loss = A.surrogate(r, adv, 0.2).tolist()
    assert loss == pytest.approx([-1.2, 5.0, -1.0, 0.4], abs=1e-6)


def test_ppo_26_value_clipping_takes_the_larger_error() -> None:
    # V_old 0, eps .2: V = 1, R = 1 would be perfect but is clipped to .2: (.2 - 1)^2 / 2 = .32;
    # V = -1, R = 1: max(4, (-.2 - 1)^2 = 1.44) / 2 = 2
    values, returns = torch.tensor([1.0, -1.0]), torch.ones(2)
    loss = value_loss(values, torch.zeros(2), returns, 0.2).tolist()
    assert loss == pytest.approx([0.32, 2.0], abs=1e-6)
    assert value_loss(values, torch.zeros(2), returns, None).tolist() == [0.0, 2.0]


def test_ppo_28_the_raw_action_is_stored_and_the_clipped_one_acts() -> None:
    d = DiagonalGaussian(
        torch.zeros(1, 1), torch.zeros(1), low=torch.tensor([-1.0]), high=torch.tensor([1.0])
    )
    raw = torch.tensor([[2.0]])
    assert float(d.log_prob(raw)) == pytest.approx(-2.9189385, abs=1e-6)
    assert float(d.to_env(raw)) == 1.0


class Reach(Toy):
    """Continuous actions; anything outside the bounds is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-0.5, 0.5, (2,), np.float32)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        result = super().step(0)
        return (result[0], -float(np.abs(action).sum()), *result[2:])


def test_ppo_28_training_stores_raw_actions() -> None:
    done = train(Reach, 2, seed=1, lr=0.0, minibatch=7)
    assert max(done["log_ratio_absmax"]) < 1e-5
    raw = done["agent"].collector._rollout.action
    assert (raw.abs() > 0.5).any()


def test_ppo_29_log_probabilities_are_one_number_per_row() -> None:
    d = DiagonalGaussian(torch.zeros(4, 3), torch.zeros(3))
    log_prob = d.log_prob(d.mode())
    assert log_prob.shape == (4,)
    assert log_prob.tolist() == pytest.approx([-2.756816] * 4, abs=1e-6)
    with pytest.raises(ValueError, match="action must have shape"):
        d.log_prob(torch.zeros(4, 1))


def test_ppo_31_an_unused_part_counts_for_nothing() -> None:
    kind = MaskedCategorical(torch.log(torch.tensor([[0.25, 0.75]])))
    target = MaskedCategorical(torch.zeros(1, 4))
    d = Composite({"kind": kind, "target": target}, {"target": ("kind", (1,))})
    idle = {"kind": torch.tensor([0]), "target": torch.tensor([3])}
    assert float(d.log_prob(idle)) == pytest.approx(math.log(0.25))
    # H = H(kind) + P(kind = 1) ln 4
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) + 0.75 * math.log(4)
    assert float(d.entropy()) == pytest.approx(entropy, abs=1e-6)


# --- resuming -------------------------------------------------------------------------------


def test_ppo_32_a_schedule_belongs_to_the_run() -> None:
    assert scheduled("linear", 3e-4, 400 / 1000) == pytest.approx(1.8e-4)


def test_ppo_32_a_resumed_run_continues_its_schedule(tmp_path: Path) -> None:
    rates: list[float] = []
    linear = {
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "total_steps": 4 * 45,
    }
    stop = [lambda agent, _: agent.iteration == 2]
    agent = train_linear(linear, rates, stop)
    agent.learn()
    agent.save(tmp_path / "half")
    resumed = PPO.load(tmp_path / "half", [Toy] * 5, callbacks=[noter(rates)], progress=False)
    resumed.learn()
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])


def noter(rates: list[float]) -> Any:
    return lambda _, metrics: rates.append(metrics["optimiser/learning_rate"])


def train_linear(settings: dict[str, Any], rates: list[float], callbacks: list[Any]) -> PPO:
    config = PPOConfig(
        num_envs=5, rollout_steps=9, epochs=1, d_model=8, n_heads=2, n_layers=1, **settings
    )
    return PPO([Toy] * 5, config, callbacks=[noter(rates), *callbacks], progress=False)


def test_ppo_34_moments_of_the_optimiser_survive(tmp_path: Path) -> None:
    agent = train(Toy, 2, seed=1, save=tmp_path / "half")["agent"]
    resumed = PPO.load(tmp_path / "half", [Toy] * 5, progress=False)
    for old, new in zip(
        agent.optimiser.state.values(), resumed.optimiser.state.values(), strict=True
    ):
        assert all(torch.equal(old[name], new[name]) for name in ("step", "exp_avg", "exp_avg_sq"))


def test_ppo_35_what_a_trainer_saves_loads_without_code(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    g.random(3)
    content = {
        "step": np.int64(7),
        "best": np.float64(1.5),
        "rms": np.arange(3.0),
        "np_rng": g.bit_generator.state,
        "cfg": {"a": (1, None)},
        "path": Path("runs"),
    }
    A.save(tmp_path / "state.pt", content)
    o = A.load(tmp_path / "state.pt")
    assert int(o["step"]) == 7
    assert float(o["best"]) == 1.5
    assert np.allclose(o["rms"], [0, 1, 2])
    assert o["cfg"] == {"a": (1, None)}
    assert o["path"] == "runs"
    h = np.random.default_rng(1)
    h.bit_generator.state = o["np_rng"]
    assert h.random() == g.random()


class Payload:
    """Runs a command where it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.target),))


def test_ppo_35_a_payload_is_refused_and_does_not_run(tmp_path: Path) -> None:
    agent = train(Toy, 1, seed=1, save=tmp_path / "good")["agent"]
    saved = load_checkpoint(tmp_path / "good")
    state = tmp_path / "good" / saved.about["files"]["state"]
    torch.save({"payload": Payload(tmp_path / "owned")}, state)
    with pytest.raises(ValueError, match="plain values and tensors only, and was refused"):
        PPO.load(tmp_path / "good", [Toy] * 5)
    state.write_bytes(pickle.dumps(Payload(tmp_path / "owned")))
    with pytest.raises(ValueError, match="was refused"):
        load_policy(tmp_path / "good")
    assert not (tmp_path / "owned").exists()
    with pytest.raises(TypeError, match=r"state\['bad'\] must be made of .*a checkpoint never"):
        A.save(tmp_path / "x", {"bad": agent})


def test_ppo_37_a_checkpoint_opens_on_a_machine_without_its_gpu(tmp_path: Path) -> None:
    train(Toy, 1, seed=1, save=tmp_path / "gpu")
    manifest = tmp_path / "gpu" / "checkpoint.json"
    about = json.loads(manifest.read_text())
    about["config"]["device"] = "cuda:3"
    manifest.write_text(json.dumps(about))
    policy = load_policy(tmp_path / "gpu")
    assert next(policy.parameters()).device.type == "cpu"
    agent = PPO.load(tmp_path / "gpu", [Toy] * 5, device="cpu", progress=False)
    assert len(agent.evaluate(6, env=[Toy] * 2).episodes) == 6


def test_ppo_38_wrapped_policies_load_each_other() -> None:
    policy, other = small_policy(spaces.Discrete(3)), small_policy(spaces.Discrete(3))
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.1)
    compiled = {f"_orig_mod.{name}": x for name, x in policy.state_dict().items()}
    restore_weights(other, {f"module.{name}": x for name, x in compiled.items()})
    observation = {key: torch.from_numpy(x)[None] for key, x in ENTITIES.sample().items()}
    observation["action_mask"] = torch.ones(1, 3)
    assert torch.equal(policy(observation).value, other(observation).value)
    assert unwrapped_names(compiled).keys() == policy.state_dict().keys()


def test_ppo_38_unknown_and_missing_names_are_errors() -> None:
    policy = small_policy(spaces.Discrete(3))
    weights = dict(policy.state_dict())
    weights["encoder.extra"] = weights.pop("encoder.empty")
    with pytest.raises(ValueError, match=r"missing \['encoder.empty'\] and unknown \['encoder.ex"):
        restore_weights(policy, weights)


@pytest.mark.parametrize("vector", ["sync", "async"])
def test_ppo_39_one_seed_gives_one_run(vector: str) -> None:
    first = train(Toy, 3, seed=1)["params"]
    torch.manual_seed(99)  # whatever others draw
    again = train(Toy, 3, seed=1, vector=vector)["params"]
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = train(Toy, 3, seed=2)["params"]
    assert any(not torch.equal(first[name], other[name]) for name in first)


# --- statistics -----------------------------------------------------------------------------


def test_ppo_40_padding_never_enters_the_statistics() -> None:
    s = A.norm_stats(1)
    x = np.zeros((1, 8, 1), np.float32)
    x[0, :3, 0] = [10, 12, 14]
    m = np.array([[1, 1, 1, 0, 0, 0, 0, 0]])
    s.update(x, m)
    assert np.allclose(s.mean, 12)  # with padding 4.5
    assert np.allclose(np.sqrt(s.var), 1.63299316, atol=1e-4)  # with padding 5.895
    y = np.asarray(s(x, m))
    assert (y[0, 3:] == 0).all()
    assert y[0, :3, 0] == pytest.approx([-1.2247449, 0, 1.2247449], abs=1e-3)


def test_ppo_40_reset_rows_never_enter_the_statistics() -> None:
    agent = PPO(
        counters([3, 3], "NEXT_STEP"),
        PPOConfig(num_envs=2, rollout_steps=8, total_steps=16, d_model=8, n_heads=2, n_layers=1),
        progress=False,
        callbacks=[lambda *_: True],
    )
    agent.learn()
    norm = agent.policy.encoder.group_norms[0]
    assert isinstance(norm, RunningNorm)
    # The two first observations (0, 0), then of each env 0, 1, 2, 0, 1, 2: the final 3 is a row
    # that only resets.
    seen = np.array([0, 0] + [0, 1, 2, 0, 1, 2] * 2)
    assert float(norm.count) == 14
    assert float(norm.mean) == pytest.approx(seen.mean())
    assert float(norm.var) == pytest.approx(seen.var())
    assert agent.steps == 12


def test_ppo_42_evaluation_changes_nothing() -> None:
    agent = train(Toy, 2, seed=1)["agent"]
    before = {name: x.clone() for name, x in agent.policy.state_dict().items()}
    generators = {name: g.get_state() for name, g in agent.generators.items()}
    world = torch.get_rng_state()
    result = agent.evaluate(10, env=[Toy] * 3)
    assert all(torch.equal(x, before[name]) for name, x in agent.policy.state_dict().items())
    assert all(torch.equal(g.get_state(), generators[n]) for n, g in agent.generators.items())
    assert torch.equal(torch.get_rng_state(), world)
    assert len(result.episodes) == 10


class BreaksLater(Toy):
    """Emits NaN in a present slot after some steps."""

    steps = 0

    def _observe(self) -> dict[str, Any]:
        observation = super()._observe()
        self.steps += 1
        if self.steps > 30:
            observation["mask"][4] = 1
            observation["entities"][4, 1] = np.nan
        return observation


def test_ppo_43_nan_in_a_present_slot_is_named_and_learns_nothing() -> None:
    seen: list[dict[str, Tensor]] = []

    def remember(agent: PPO, _: Any) -> None:
        seen.append({name: p.detach().clone() for name, p in agent.policy.named_parameters()})

    agent = PPO(
        [Toy, Toy, BreaksLater],
        PPOConfig(num_envs=3, rollout_steps=9, total_steps=270, d_model=8, n_heads=2, n_layers=1),
        callbacks=[remember],
        progress=False,
    )
    with pytest.raises(
        ValueError, match=r"finite, got nan in environment 2, key 'entities', slot 4"
    ) as error:
        agent.learn()
    assert "step" in str(error.value)
    assert any("after" in note for note in error.value.__notes__)
    now = dict(agent.policy.named_parameters())
    assert all(torch.equal(now[name], x) for name, x in seen[-1].items())
