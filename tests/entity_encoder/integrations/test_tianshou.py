import copy
import os
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntitySchema, PerEntity
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe, permuted, with_junk

os.environ["NUMBA_DISABLE_JIT"] = "1"  # compiling takes longer than all these tests
pytest.importorskip("tianshou", reason="tianshou is not installed")

from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from entity_encoder.integrations.tianshou import (
    EntityCritic,
    EntityNet,
    entity_policy,
    normalise_between_rollouts,
    read,
)


def make(
    num_envs: int = 3,
    *,
    lr: float = 1e-3,
    net: dict[str, Any] | None = None,
    ppo: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """Return an algorithm, a collector and the network that they share."""
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002 (Tianshou shuffles minibatches with it)
    env = DummyVectorEnv([lambda: Beacon(**options)] * num_envs)
    env.seed(3)
    toy = Beacon(**options)
    module = EntityNet(toy.observation_space, **SMALL, **(net or {}))
    algorithm: Any = PPO(
        policy=entity_policy(module, toy.action_space),
        critic=EntityCritic(module),
        optim=AdamOptimizerFactory(lr=lr),
        **(ppo or {}),
    )
    collector: Any = Collector(algorithm, env, VectorReplayBuffer(240, num_envs))
    return algorithm, collector, module


def train(
    algorithm: Any, collector: Any, iterations: int, *, steps: int = 24, repeat: int = 2
) -> None:
    params = OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=steps * iterations,
        collection_step_num_env_steps=steps,
        update_step_num_repetitions=repeat,
        batch_size=steps // 2,
        verbose=False,
        show_progress=False,
    )
    algorithm.run_training(params)


def weights(algorithm: Any) -> dict[str, torch.Tensor]:
    state = {**algorithm.policy.state_dict(), **algorithm.critic.state_dict()}
    return {name: value.clone() for name, value in state.items()}


def probabilities(algorithm: Any, observation: dict[str, np.ndarray]) -> torch.Tensor:
    probs: torch.Tensor = algorithm.policy(Batch(obs=Batch(observation), info={})).dist.probs
    return probs.detach()


@pytest.mark.parametrize("junk", [1e30, np.inf])  # Tianshou's buffer refuses NaN
@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_what_absent_slots_hold_changes_no_distribution_and_no_learning(
    junk: float, action: str
) -> None:
    states = []
    for content in (0.0, junk):
        algorithm, collector, _ = make(action=action, junk=content)
        normalise_between_rollouts(algorithm)
        train(algorithm, collector, 2)
        states.append(weights(algorithm))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    if action != "push":
        observation = observe(5, action=action)
        expected = probabilities(algorithm, observation)
        assert torch.equal(probabilities(algorithm, with_junk(observation, junk)), expected)


def test_the_order_of_entities_changes_nothing() -> None:
    algorithm, _, _ = make()
    observation = observe(7)
    shuffled, _ = permuted(observation)
    torch.testing.assert_close(
        probabilities(algorithm, shuffled), probabilities(algorithm, observation)
    )


def test_one_pass_per_minibatch_serves_actor_and_critic() -> None:
    algorithm, collector, net = make()
    passes: list[int] = []
    net.encoder.register_forward_hook(lambda _, __, out: passes.append(len(out.pooled)))
    train(algorithm, collector, 1)
    # 8 steps of 3 environments; then, once per rollout, values, next values and the logarithms
    # of what was done; then 2 epochs of two minibatches.
    assert passes == [3] * 8 + [24] * 3 + [12] * 4


def test_a_rollout_is_learned_from_at_a_ratio_of_one() -> None:
    algorithm, collector, net = make(16, lr=0.0)
    normalise_between_rollouts(algorithm)
    seen: list[torch.Tensor] = []
    act = algorithm.policy.forward

    def forward(batch: Any, *args: Any, **kwargs: Any) -> Any:
        out = act(batch, *args, **kwargs)
        if "logp_old" in batch.get_keys():
            seen.append((out.dist.log_prob(batch.act) - batch.logp_old).detach())
        return out

    algorithm.policy.__dict__["forward"] = forward
    train(algorithm, collector, 2, steps=32)
    assert len(seen) == 8
    assert float(torch.cat(seen).abs().max()) == 0
    assert net.encoder.group_norms[0].count > 0


def test_statistics_begin_with_the_first_observations_and_grow_after_learning() -> None:
    algorithm, collector, net = make(16)
    normalise_between_rollouts(algorithm)
    means: list[torch.Tensor] = []
    net.encoder.register_forward_hook(
        lambda *_: means.append(net.encoder.group_norms[0].mean.clone())
    )
    train(algorithm, collector, 2, steps=32, repeat=1)
    # Two steps, three passes before learning, two minibatches; twice.
    assert len(means) == 14
    for first, last in ((0, 6), (7, 13)):
        assert all(torch.equal(mean, means[first]) for mean in means[first : last + 1])
    assert bool((means[0] != 0).any())
    assert not torch.equal(means[0], means[7])


def test_without_the_call_features_pass_as_they_are() -> None:
    algorithm, collector, net = make()
    train(algorithm, collector, 1)
    assert net.encoder.group_norms[0].count == 0


def test_illegal_actions_are_never_taken() -> None:
    algorithm, collector, _ = make(legal=True)
    kept: list[Any] = []
    update = algorithm.update

    def watch(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        kept.append(buffer[buffer.sample_indices(0)])
        return update(buffer, *args, **kwargs)

    algorithm.__dict__["update"] = watch
    train(algorithm, collector, 1)
    (batch,) = kept
    taken = np.take_along_axis(batch.obs["action_mask"], batch.act[:, None].astype(int), 1)
    assert (taken == 1).all()


def test_actions_are_scaled_into_the_bounds_of_the_space() -> None:
    net = EntityNet(Beacon().observation_space, **SMALL)
    policy = entity_policy(net, spaces.Box(10.0, 30.0, (1,)))
    np.testing.assert_allclose(policy.map_action(np.array([[-5.0], [0.5]])), [[10.0], [25.0]])
    unbounded = entity_policy(net, spaces.Box(-np.inf, np.inf, (1,)))
    np.testing.assert_allclose(unbounded.map_action(np.array([[-5.0]])), [[-5.0]])


def test_every_entity_can_choose() -> None:
    net = EntityNet(Beacon().observation_space, **SMALL)
    policy = entity_policy(net, PerEntity("beacon", 5, 3))
    observation = observe(6)
    out = policy(Batch(obs=Batch(observation), info={}))
    assert out.act.shape == (6, 5)
    assert bool((out.act[torch.as_tensor(observation["beacon_mask"]) == 0] == 0).all())
    assert out.dist.log_prob(out.act).shape == (6,)


def test_a_critic_may_see_more() -> None:
    schema = EntitySchema.from_space(Beacon().observation_space, critic_only=("rock",))
    algorithm, collector, _ = make(net={"schema": schema})
    observation = observe(5)
    changed = {**observation, "rock": observation["rock"] + 1}
    assert torch.equal(probabilities(algorithm, changed), probabilities(algorithm, observation))
    values = [algorithm.critic(Batch(seen)) for seen in (observation, changed)]
    assert not torch.equal(values[0], values[1])
    train(algorithm, collector, 1)


def test_saved_and_loaded_it_goes_on_as_before(tmp_path: Any) -> None:
    algorithm, collector, _ = make()
    normalise_between_rollouts(algorithm)
    train(algorithm, collector, 2)
    torch.save(algorithm.state_dict(), tmp_path / "algorithm.pt")
    states = []
    for _ in range(2):
        resumed, collector, _ = make()
        normalise_between_rollouts(resumed)
        resumed.load_state_dict(torch.load(tmp_path / "algorithm.pt", weights_only=True))
        loaded = weights(resumed)
        assert all(torch.equal(loaded[n], v) for n, v in weights(algorithm).items())
        train(resumed, collector, 1)
        states.append(weights(resumed))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], loaded[name]) for name in loaded)


def test_a_policy_can_be_copied_and_pickled() -> None:
    algorithm, _, _ = make()
    observation = observe(4)
    expected = probabilities(algorithm, observation)
    for policy in (
        copy.deepcopy(algorithm.policy),
        pickle.loads(pickle.dumps(algorithm.policy)),
    ):
        other = policy(Batch(obs=Batch(observation), info={})).dist.probs
        assert torch.equal(other, expected)


def test_a_short_run_learns() -> None:
    algorithm, collector, _ = make(12, lr=1e-2)
    train(algorithm, collector, 5, steps=240, repeat=6)
    observation = observe(200)
    lit = observation["beacon"][..., 1] * observation["beacon_mask"] == 1
    side = observation["beacon"][..., 0][lit].astype(int) + 1
    assert (probabilities(algorithm, observation).argmax(1).numpy() == side).mean() > 0.9


def test_tianshou_s_own_actor_and_critic_share_a_pass_too() -> None:
    toy = Beacon()
    net = EntityNet(toy.observation_space, **SMALL)
    actor = DiscreteActor(preprocess_net=net, action_shape=3, softmax_output=False)
    critic = DiscreteCritic(preprocess_net=net)
    passes: list[int] = []
    net.encoder.register_forward_hook(lambda _, __, out: passes.append(1))
    obs = Batch(observe(4))
    logits, _ = actor(obs)
    assert logits.shape == (4, 3)
    assert critic(obs).shape == (4, 1)
    assert len(passes) == 1


def test_q_learning_uses_the_network() -> None:
    toy = Beacon(junk=np.inf)
    torch.manual_seed(1)
    net = EntityNet(toy.observation_space, **SMALL)
    model = DiscreteActor(preprocess_net=net, action_shape=3, softmax_output=False)
    policy: Any = DiscreteQLearningPolicy(
        model=model, action_space=toy.action_space, observation_space=toy.observation_space
    )
    algorithm: Any = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=2)
    env = DummyVectorEnv([lambda: Beacon(junk=np.inf)] * 2)
    collector: Any = Collector(algorithm, env, VectorReplayBuffer(60, 2))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=24,
            collection_step_num_env_steps=6,
            update_step_num_gradient_steps_per_sample=0.5,
            batch_size=6,
            verbose=False,
            show_progress=False,
        )
    )
    after = net.state_dict()
    assert all(bool(torch.isfinite(value).all()) for value in after.values())
    assert any(not torch.equal(after[name], before[name]) for name in after)


def test_the_key_that_means_something_else_is_refused() -> None:
    space = spaces.Dict(unit=spaces.Box(-1, 1, (3, 2)), mask=spaces.MultiBinary(3))
    with pytest.raises(ValueError, match=r"not have the key 'mask'.*name it 'unit_mask'"):
        EntityNet(space)


def test_batches_and_dicts_are_read_alike() -> None:
    observation = observe(3)
    assert set(read(Batch(observation))) == set(read(observation)) == set(observation)


def test_our_environments_work() -> None:
    pytest.importorskip("entity_encoder.envs")
    names = [lambda: gymnasium.make("Entity/FloorIsLava-v0")] * 3
    single = gymnasium.make("Entity/FloorIsLava-v0")
    net = EntityNet(
        single.observation_space, schema=single.get_wrapper_attr("entity_schema"), **SMALL
    )
    algorithm: Any = PPO(
        policy=entity_policy(net, single.action_space),
        critic=EntityCritic(net),
        optim=AdamOptimizerFactory(lr=1e-3),
    )
    collector: Any = Collector(algorithm, DummyVectorEnv(names), VectorReplayBuffer(60, 3))
    train(algorithm, collector, 1)
