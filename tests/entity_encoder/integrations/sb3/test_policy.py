from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder import EntityEncoder, EntitySchema, PerEntity
from tests.entity_encoder.integrations.toys import (
    SMALL,
    Beacon,
    beacons,
    observe,
    permuted,
    with_junk,
)

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import stable_baselines3
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import VecMonitor

from entity_encoder.integrations.sb3 import (
    EntityPolicy,
    GymnasiumVecEnv,
    NormalisationCallback,
    policy_kwargs,
)

sb3: Any = stable_baselines3


def make(action: str, num_envs: int = 2, *, policy: Any = None, **options: Any) -> Any:
    env_options = {k: options.pop(k) for k in ("junk", "legal") if k in options}
    env = GymnasiumVecEnv(beacons(num_envs, AutoresetMode.SAME_STEP, action=action, **env_options))
    kwargs = {"policy_kwargs": policy_kwargs(**SMALL) | (policy or {})}
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 3, "device": "cpu"} | options
    return sb3.PPO(EntityPolicy, env, **kwargs, **options)


def probabilities(model: Any, observation: dict[str, np.ndarray]) -> torch.Tensor:
    inputs, _ = model.policy.obs_to_tensor(observation)
    distribution: Any = model.policy.get_distribution(inputs)
    probs: torch.Tensor = distribution.distribution.probs.detach()
    return probs


@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_a_rollout_is_learned_from_at_a_ratio_of_exactly_one(action: str) -> None:
    model = make(action, learning_rate=0.0)
    model.learn(32, callback=NormalisationCallback())
    assert model.logger.name_to_value["train/approx_kl"] == 0
    assert model.logger.name_to_value["train/clip_fraction"] == 0


@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_what_absent_slots_hold_changes_no_learning(action: str) -> None:
    clean, dirty = make(action), make(action, junk=np.nan)
    for model in (clean, dirty):
        model.set_random_seed(3)
        model.learn(32, callback=NormalisationCallback())
    ours, theirs = clean.policy.state_dict(), dirty.policy.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_pointing_follows_the_entities_and_never_hits_an_empty_slot() -> None:
    model = make("point")
    torch.nn.init.normal_(model.policy.action_net.pointer.query.get_submodule("0").weight)
    observation = observe(7, action="point")
    probs = probabilities(model, observation)
    assert probs.std() > 0.01
    assert bool((probs[torch.as_tensor(observation["beacon_mask"]) == 0] == 0).all())
    assert torch.equal(probabilities(model, with_junk(observation, np.inf)), probs)
    shuffled, order = permuted(observation)
    torch.testing.assert_close(probabilities(model, shuffled), probs[:, order])


def test_pointing_is_learned() -> None:
    env = VecMonitor(GymnasiumVecEnv(beacons(16, AutoresetMode.SAME_STEP, action="point")))
    model = sb3.PPO(
        EntityPolicy,
        env,
        policy_kwargs=policy_kwargs(**SMALL),
        n_steps=16,
        batch_size=64,
        n_epochs=4,
        learning_rate=1e-2,
        seed=1,
    )
    model.learn(1024)
    assert model.ep_info_buffer is not None
    recent = np.mean([episode["r"] for episode in list(model.ep_info_buffer)[-30:]])
    assert recent > 2.4  # of 3; choosing among the present beacons gives about 1.5


def test_illegal_actions_of_the_observation_are_never_taken() -> None:
    model = make("side", legal=True)
    model.learn(16)
    buffer: Any = model.rollout_buffer
    taken = buffer.actions.astype(int).ravel()
    legal = buffer.observations["action_mask"].reshape(len(taken), 3)
    assert (legal[np.arange(len(taken)), taken] == 1).all()


def test_one_pass_serves_actor_and_critic() -> None:
    model = make("side")
    passes: list[int] = []
    encoder = model.policy.features_extractor.encoder
    encoder.register_forward_hook(lambda _, __, out: passes.append(len(out.pooled)))
    model.learn(16)
    assert passes.count(8) == 4  # two epochs of two minibatches
    assert passes.count(2) == 8 + 1


def critic_only_space() -> tuple[EntitySchema, dict[str, torch.Tensor]]:
    space = Beacon().observation_space
    schema = EntitySchema.from_space(space, critic_only=("rock",))
    return schema, {key: torch.as_tensor(value) for key, value in observe(5).items()}


def test_what_only_the_critic_may_see_changes_the_value_alone() -> None:
    schema, observation = critic_only_space()
    model = make("side", policy=policy_kwargs(schema=schema, **SMALL))
    policy: Any = model.policy
    changed = {**observation, "rock": observation["rock"] + 1}
    action = torch.zeros(5, dtype=torch.int64)
    values, log_prob, _ = policy.evaluate_actions(observation, action)
    other, same, _ = policy.evaluate_actions(changed, action)
    assert torch.equal(same, log_prob)
    assert not torch.equal(other, values)
    torch.testing.assert_close(policy.predict_values(changed), other)


def test_a_critic_of_its_own_has_an_encoder_of_its_own() -> None:
    model = make("side", policy={"share_features_extractor": False})
    encoders = [m for m in model.policy.modules() if isinstance(m, EntityEncoder)]
    assert len(encoders) == 2
    model.learn(16)


class Crew(Beacon):
    """Every beacon chooses among two; the reward counts lit ones that choose 1."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = PerEntity("beacon", 5, 2)

    def _right(self, action: Any) -> bool:
        return bool(action[self.lit] == 1)


def test_every_entity_can_choose_and_a_model_is_saved_and_loaded(tmp_path: Any) -> None:
    model = sb3.A2C(EntityPolicy, Crew(), policy_kwargs=policy_kwargs(**SMALL), n_steps=4, seed=1)
    model.learn(16)
    model.save(tmp_path / "model")
    loaded = sb3.A2C.load(tmp_path / "model")
    observation = observe(4)
    chosen, _ = model.predict(observation, deterministic=True)
    again, _ = loaded.predict(observation, deterministic=True)
    assert chosen.shape == (4, 5)
    np.testing.assert_array_equal(again, chosen)
    policy: Any = EntityPolicy
    model.policy.save(str(tmp_path / "policy"))
    alone = policy.load(str(tmp_path / "policy"))
    np.testing.assert_array_equal(alone.predict(observation, deterministic=True)[0], chosen)


def test_hidden_layers_are_those_of_net_arch() -> None:
    arch = {"pi": [7], "vf": [11, 5]}
    policy: Any = make("side", policy={"net_arch": arch}).policy
    assert [m.out_features for m in policy.value_net.modules() if hasattr(m, "out_features")] == [
        11,
        5,
        1,
    ]
    assert [m.out_features for m in policy.action_net.modules() if hasattr(m, "out_features")] == [
        7,
        3,
    ]
    assert make("side", policy={"net_arch": None}).policy.net_arch == []


def test_another_extractor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be EntityFeaturesExtractor.*got CombinedExtractor"):
        make("side", policy={"features_extractor_class": CombinedExtractor})


def test_state_dependent_exploration_is_refused() -> None:
    with pytest.raises(ValueError, match=r"use_sde must be False, got True"):
        make("push", use_sde=True)


def test_the_distribution_has_sb3_s_methods() -> None:
    model = make("side")
    policy: Any = model.policy
    inputs, _ = policy.obs_to_tensor(observe(5))
    wrapped = policy.get_distribution(inputs)
    ours = wrapped.distribution
    action = wrapped.mode()
    assert torch.equal(wrapped.actions_from_params(ours, deterministic=True), action)
    assert torch.equal(wrapped.log_prob(action), ours.log_prob(action))
    assert torch.equal(wrapped.entropy(), ours.entropy())
    drawn, log_prob = wrapped.log_prob_from_params(ours)
    assert torch.equal(log_prob, ours.log_prob(drawn))
    with pytest.raises(TypeError, match=r"made by its head"):
        wrapped.proba_distribution_net()


def test_the_environment_of_a_wrapped_gymnasium_name_works() -> None:
    pytest.importorskip("entity_encoder.envs")
    env = gymnasium.make("Entity/CherryPick-v0", max_cherries=6)
    assert isinstance(env.action_space, spaces.Discrete)
    kwargs = policy_kwargs(env, **SMALL)
    assert kwargs["features_extractor_kwargs"]["schema"].group("cherry").slots == 6
    sb3.PPO(EntityPolicy, env, policy_kwargs=kwargs, n_steps=6, batch_size=6).learn(12)
