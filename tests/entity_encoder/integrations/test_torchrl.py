import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder import EntitySchema, PerEntity
from tests.entity_encoder.integrations.toys import (
    SMALL,
    Beacon,
    beacons,
    observe,
    permuted,
    with_junk,
)

pytest.importorskip("torchrl", reason="torchrl is not installed")

from tensordict import TensorDict
from torchrl.envs import GymWrapper
from torchrl.envs.utils import check_env_specs
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from entity_encoder.integrations.torchrl import EntityActorCritic

with warnings.catch_warnings():  # its own classes are deprecated
    warnings.simplefilter("ignore")
    from torchrl.collectors import Collector


def make(
    num_envs: int = 3, *, model: dict[str, Any] | None = None, **options: Any
) -> tuple[Any, Any]:
    torch.manual_seed(7)
    envs = beacons(num_envs, AutoresetMode.DISABLED, **options)
    env = GymWrapper(envs, categorical_action_encoding=True)
    env.set_seed(3)
    return env, EntityActorCritic.for_env(env, **SMALL, **(model or {}))


def learn(
    env: Any,
    model: EntityActorCritic,
    iterations: int,
    *,
    frames: int = 24,
    epochs: int = 2,
    lr: float = 1e-3,
    optimizer: Any = None,
) -> Any:
    """Collect and learn; return the worst approximate divergence and the optimiser."""
    loss = ClipPPOLoss(model.policy, model.value_head, normalize_advantage=True)
    optimizer = optimizer or torch.optim.Adam(loss.parameters(), lr=lr)
    advantage = model.gae()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # InitTracker, for recurrent policies only
        collector = Collector(
            env, model.policy, frames_per_batch=frames, total_frames=frames * iterations
        )
    worst = 0.0
    for data in collector:
        with torch.no_grad():
            advantage(data)
        rows = data.reshape(-1)
        for _ in range(epochs):
            for index in torch.randperm(len(rows)).split(len(rows) // 2):
                losses = loss(rows[index])
                total = sum(losses[f"loss_{part}"] for part in ("objective", "critic", "entropy"))
                optimizer.zero_grad()
                total.backward()
                optimizer.step()
                worst = max(worst, abs(float(losses["kl_approx"])))
        model.update_statistics(data)
    collector.shutdown()
    return worst, optimizer


def tensors(observation: dict[str, np.ndarray]) -> TensorDict:
    return TensorDict(
        {key: torch.as_tensor(value) for key, value in observation.items()},
        batch_size=observation["beacon"].shape[:1],
    )


def probabilities(model: EntityActorCritic, observation: dict[str, np.ndarray]) -> torch.Tensor:
    distribution: Any = model.policy.get_dist(tensors(observation))
    probs: torch.Tensor = distribution.probs.detach()
    return probs


@pytest.mark.parametrize("junk", [1e30, np.nan])
@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_what_absent_slots_hold_changes_no_distribution_and_no_learning(
    junk: float, action: str
) -> None:
    states = []
    for content in (0.0, junk):
        env, model = make(action=action, junk=content)
        learn(env, model, 2)
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    if action != "push":
        observation = observe(5, action=action)
        expected = probabilities(model, observation)
        assert torch.equal(probabilities(model, with_junk(observation, junk)), expected)


def test_the_order_of_entities_changes_nothing() -> None:
    _, model = make()
    observation = observe(7)
    shuffled, _ = permuted(observation)
    torch.testing.assert_close(probabilities(model, shuffled), probabilities(model, observation))


def test_one_pass_per_minibatch_and_two_per_rollout() -> None:
    env, model = make()
    passes: list[tuple[int, ...]] = []
    model.encoder.register_forward_hook(
        lambda _, __, out: passes.append(tuple(out.pooled.shape[:-1]))
    )
    learn(env, model, 1)
    acting = [shape for shape in passes if shape == (3,)]
    assert 8 <= len(acting) <= 9  # 8 steps; the collector also asks once for the keys written
    # The advantage estimator values (envs, time) observations and the ones after them; then come
    # 2 epochs of 2 minibatches of 12.
    assert passes[len(acting) :] == [(3, 8)] * 2 + [(12,)] * 4


def test_rollouts_hold_no_encodings() -> None:
    env, model = make(action="point")
    data = env.rollout(3, model.policy, break_when_any_done=False)
    assert {"action", "action_log_prob"} <= set(data.keys())
    assert not {"pooled", "entities", "entity_mask", "logits"} & set(data.keys())


@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_a_rollout_is_learned_from_at_a_ratio_of_exactly_one(action: str) -> None:
    env, model = make(action=action)
    worst, _ = learn(env, model, 2, lr=0.0)
    assert worst == 0
    assert model.encoder.group_norms[0].count > 0


def test_learning_uses_the_statistics_that_were_updated() -> None:
    """TorchRL's losses keep weights and buffers apart from the modules."""
    env, model = make()
    loss = ClipPPOLoss(model.policy, model.value_head)
    with torch.no_grad():
        data = env.rollout(6, model.policy, break_when_any_done=False)
        model.gae()(data)
    before = loss(data.reshape(-1))["loss_critic"]
    model.update_statistics(data)
    assert loss(data.reshape(-1))["loss_critic"] != before


def test_every_weight_learns_from_both_losses() -> None:
    env, model = make()
    loss = ClipPPOLoss(model.policy, model.value_head)
    with torch.no_grad():
        data = env.rollout(6, model.policy, break_when_any_done=False)
        model.gae()(data)
    for part in ("loss_objective", "loss_critic"):
        loss.zero_grad()
        loss(data.reshape(-1))[part].backward()
        for name, weight in model.encoder.named_parameters():
            if name != "empty":
                assert weight.grad is not None, name
                assert bool((weight.grad != 0).any()), name


def test_the_specification_holds_while_the_number_of_entities_changes() -> None:
    env, model = make(2)
    check_env_specs(env)
    data = env.rollout(10, model.policy, break_when_any_done=False)
    assert len(set(data["beacon_mask"].sum(-1).flatten().tolist())) > 1


def test_the_true_last_observation_is_the_one_that_is_valued() -> None:
    env, model = make(1)
    data = env.rollout(6, model.policy, break_when_any_done=False)[0]
    ended = data["next", "done"].squeeze(-1)
    assert ended.tolist() == [False, False, True, False, False, True]
    assert data["next", "time"][ended].flatten().tolist() == [1.0, 1.0]
    assert data["time"].flatten().tolist() == pytest.approx([0, 1 / 3, 2 / 3] * 2)


def test_illegal_actions_are_never_taken() -> None:
    env, model = make(legal=True)
    data = env.rollout(12, model.policy, break_when_any_done=False)
    taken = data["action_mask"].gather(-1, data["action"][..., None])
    assert bool((taken == 1).all())
    empty = tensors(observe(2, legal=True))
    empty["action_mask"][1] = 0
    with pytest.raises(ValueError, match=r"at least one legal choice .* environment 1"):
        model.policy(empty)


def test_absent_actors_do_nothing_and_cost_nothing() -> None:
    space = Beacon().observation_space
    torch.manual_seed(3)
    model = EntityActorCritic(space, PerEntity("beacon", 5, 4), **SMALL)
    data = tensors(observe(6))
    model.policy(data)
    there = data["beacon_mask"] == 1
    assert data["action"].shape == (6, 5)
    assert bool((data["action"][~there] == 0).all())
    distribution: Any = model.policy.get_dist(tensors(observe(6)))
    # With its tiny last layer the policy is close to uniform over four choices.
    uniform = there.sum(1) * np.log(4)
    torch.testing.assert_close(distribution.entropy(), uniform.float(), atol=0.05, rtol=0)
    torch.testing.assert_close(-data["action_log_prob"], uniform.float(), atol=0.5, rtol=0)


def test_several_choices_at_once_have_one_log_probability() -> None:
    space = spaces.MultiDiscrete([2, 3, 4])
    model = EntityActorCritic(Beacon().observation_space, space, **SMALL)
    data = model.policy(tensors(observe(6)))
    assert data["action"].shape == (6, 3)
    assert data["action_log_prob"].shape == (6,)
    assert bool((data["action"] < torch.tensor([2, 3, 4])).all())


def test_a_critic_may_see_more() -> None:
    space = Beacon().observation_space
    schema = EntitySchema.from_space(space, critic_only=("rock",))
    env, model = make(model={"schema": schema})
    observation = observe(5)
    changed = {**observation, "rock": observation["rock"] + 1}
    assert torch.equal(probabilities(model, changed), probabilities(model, observation))
    values = [model.value(tensors(seen))["state_value"] for seen in (observation, changed)]
    assert not torch.equal(values[0], values[1])
    learn(env, model, 1)


def test_saved_and_loaded_it_goes_on_as_before(tmp_path: Any) -> None:
    env, model = make()
    _, optimizer = learn(env, model, 2)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "run.pt")
    states = []
    for _ in range(2):
        env, resumed = make()
        weights, moments = torch.load(tmp_path / "run.pt", weights_only=True)
        resumed.load_state_dict(weights)
        loss = ClipPPOLoss(resumed.policy, resumed.value_head)
        optimizer = torch.optim.Adam(loss.parameters())
        optimizer.load_state_dict(moments)
        learn(env, resumed, 1, optimizer=optimizer)
        states.append(resumed.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], weights[name]) for name in weights)


def test_a_short_run_learns() -> None:
    env, model = make(16)
    learn(env, model, 4, frames=256, epochs=8, lr=1e-2)
    observation = observe(200)
    lit = observation["beacon"][..., 1] * observation["beacon_mask"] == 1
    side = observation["beacon"][..., 0][lit].astype(int) + 1
    assert (probabilities(model, observation).argmax(1).numpy() == side).mean() > 0.9


def test_vmap_is_refused_with_the_way_round_it() -> None:
    env, model = make()
    data = env.rollout(3, model.policy, break_when_any_done=False)
    advantage = GAE(gamma=0.9, lmbda=0.9, value_network=model.value)
    with pytest.raises(ValueError, match=r"under vmap.*deactivate_vmap=True"):
        advantage(data)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-1, 1, (2, 2)), r"one axis, got shape \(2, 2\)"),
        (spaces.Discrete(3, start=2), "counted from 0"),
        (spaces.MultiBinary(3), "must be Discrete, .* got MultiBinary"),
    ],
    ids=["matrix", "start", "bits"],
)
def test_other_action_spaces_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EntityActorCritic(Beacon().observation_space, space, **SMALL)


def test_our_environments_bring_their_schema() -> None:
    pytest.importorskip("entity_encoder.envs")
    envs = gymnasium.make_vec("Entity/CherryPick-v0", 3, autoreset_mode="Disabled", max_cherries=6)
    env = GymWrapper(envs, categorical_action_encoding=True)
    model = EntityActorCritic.for_env(env, **SMALL)
    assert model.schema == envs.entity_schema  # type: ignore[attr-defined]
    data = env.rollout(4, model.policy, break_when_any_done=False)
    single = GymWrapper(gymnasium.make("Entity/CherryPick-v0"), categorical_action_encoding=True)
    assert EntityActorCritic.for_env(single, **SMALL).schema.group("cherry").slots == 32
    assert data.shape == (3, 4)
