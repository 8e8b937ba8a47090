from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntityEncoder, EntitySchema
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe, permuted, with_junk

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import stable_baselines3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv

from entity_encoder.integrations.sb3 import EntityFeaturesExtractor, policy_kwargs
from entity_encoder.integrations.sb3.extractor import schema_of

sb3: Any = stable_baselines3


def make_ppo(num_envs: int = 2, **options: Any) -> Any:
    env_options = {k: options.pop(k) for k in ("junk", "action") if k in options}
    env = DummyVecEnv([lambda: Beacon(**env_options)] * num_envs)
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 3, "device": "cpu"} | options
    return sb3.PPO("MultiInputPolicy", env, **({"policy_kwargs": policy_kwargs(**SMALL)} | options))


def log_probs(model: Any, observation: dict[str, np.ndarray]) -> torch.Tensor:
    """Return the logarithms of all action probabilities, (rows, 3)."""
    inputs, _ = model.policy.obs_to_tensor(observation)
    distribution: Any = model.policy.get_distribution(inputs).distribution
    logits: torch.Tensor = distribution.logits
    return logits.detach()


def parameters(model: BaseAlgorithm) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def count_passes(model: BaseAlgorithm) -> list[int]:
    """Return a list that receives the number of rows of every pass of an encoder."""
    passes: list[int] = []
    for module in model.policy.modules():
        if isinstance(module, EntityEncoder):
            module.register_forward_hook(lambda _, __, out: passes.append(len(out.pooled)))
    return passes


def test_the_width_of_the_features_is_the_encoder_s() -> None:
    extractor = EntityFeaturesExtractor(Beacon().observation_space, **SMALL)
    assert extractor.features_dim == extractor.encoder.output_dim == 12 + 12  # and global features


def test_orthogonal_initialisation_touches_the_heads_only() -> None:
    model = make_ppo()
    torch.manual_seed(3)  # what SB3 does before it builds the policy
    alone = EntityEncoder(Beacon().observation_space, **SMALL)
    inside = model.policy.features_extractor.encoder
    for (name, value), expected in zip(inside.named_parameters(), alone.parameters(), strict=True):
        assert torch.equal(value, expected), name
    policy: Any = model.policy
    # An orthogonal matrix times a gain has that gain as its singular values.
    gains = torch.linalg.svdvals(policy.action_net.weight)
    torch.testing.assert_close(gains, torch.full((3,), 0.01))
    torch.testing.assert_close(policy.value_net.weight.norm(), torch.tensor(1.0))


def test_other_functions_are_still_applied_inside() -> None:
    extractor = EntityFeaturesExtractor(Beacon().observation_space, **SMALL)
    seen: list[torch.nn.Module] = []
    assert extractor.apply(seen.append) is extractor
    assert seen == list(reversed(list(extractor.modules()))) or len(seen) == len(
        list(extractor.modules())
    )


@pytest.mark.parametrize("junk", [1e30, np.nan])
def test_what_absent_slots_hold_changes_no_distribution_and_no_learning(junk: float) -> None:
    clean, dirty = make_ppo(), make_ppo(junk=junk)
    observation = observe(7)
    expected = log_probs(clean, observation)
    assert torch.equal(log_probs(clean, with_junk(observation, junk)), expected)
    for model in (clean, dirty):
        model.set_random_seed(3)
        model.learn(32)  # two rollouts, eight gradient steps
    ours, theirs = parameters(clean), parameters(dirty)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_order_of_entities_changes_nothing() -> None:
    model = make_ppo()
    observation = observe(7)
    shuffled, _ = permuted(observation)
    torch.testing.assert_close(log_probs(model, shuffled), log_probs(model, observation))


@pytest.mark.parametrize(("shared", "per_use"), [(True, 1), (False, 2)])
def test_one_pass_per_minibatch_serves_actor_and_critic(shared: bool, per_use: int) -> None:
    kwargs = policy_kwargs(**SMALL) | {"share_features_extractor": shared}
    model = make_ppo(policy_kwargs=kwargs)
    passes = count_passes(model)
    model.learn(16)
    # 8 steps of 2 environments; 2 epochs of two minibatches of 8; truncated episodes are valued
    # one by one, and the last observation once, by the critic alone.
    assert passes.count(8) == 2 * 2 * per_use
    assert passes.count(2) == 8 * per_use + 1


def test_every_weight_learns_from_both_losses() -> None:
    model = make_ppo()
    observation = observe(16)
    policy: Any = model.policy
    inputs, _ = policy.obs_to_tensor(observation)
    values, log_prob, _ = policy.evaluate_actions(inputs, torch.arange(16) % 3)
    for loss in (values.sum(), log_prob.sum()):
        policy.zero_grad()
        loss.backward(retain_graph=True)
        encoder = policy.features_extractor.encoder
        for name, weight in encoder.named_parameters():
            if name != "empty":  # only used by empty sets, and a lit beacon is always there
                assert weight.grad is not None, name
                assert bool((weight.grad != 0).any()), name


def test_one_rollout_is_learned_from_at_ratio_one() -> None:
    model = make_ppo(learning_rate=0.0)
    model.learn(16)
    logged = model.logger.name_to_value
    assert logged["train/clip_fraction"] == 0
    assert abs(logged["train/approx_kl"]) < 1e-10


def test_float_masks_and_bytes_mean_what_they_meant() -> None:
    """SB3 makes masks float, and bytes only become pictures in three dimensions."""
    space = spaces.Dict(
        thing=spaces.Box(0, 255, (4, 3), np.uint8), thing_mask=spaces.MultiBinary(4)
    )
    extractor = EntityFeaturesExtractor(space, **SMALL)
    table = np.arange(2 * 12, dtype=np.uint8).reshape(2, 4, 3) * 10
    mask = np.array([[1, 0, 1, 0], [0, 0, 0, 1]], dtype=np.int8)
    model = sb3.PPO("MultiInputPolicy", _Fixed(space), policy_kwargs=policy_kwargs(**SMALL))
    model.policy.features_extractor = extractor
    policy: Any = model.policy
    inputs, _ = policy.obs_to_tensor({"thing": table, "thing_mask": mask})
    through_sb3 = policy.extract_features(inputs, extractor)
    expected = extractor.encoder({"thing": table.astype(np.float32), "thing_mask": mask != 0})
    assert torch.equal(through_sb3, expected.pooled)


class _Fixed(gymnasium.Env[Any, Any]):
    """An environment that shows samples of any space."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observation_space: spaces.Space[Any], action_space: Any = None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def test_a_changed_mask_is_refused_with_the_usual_cause() -> None:
    extractor = EntityFeaturesExtractor(Beacon().observation_space, **SMALL)
    observation = {key: torch.as_tensor(value).float() for key, value in observe(2).items()}
    observation["beacon_mask"] = observation["beacon_mask"] - 0.5
    with pytest.raises(ValueError, match=r"'beacon_mask' must hold .* use EntityVecNormalize"):
        extractor(observation)


def test_a_space_without_a_mask_is_refused_with_the_key_that_is_missing() -> None:
    space = spaces.Dict(thing=spaces.Box(-1, 1, (4, 3)))
    with pytest.raises(ValueError, match=r"'thing_mask' as MultiBinary\(4\).*presence column"):
        sb3.PPO("MultiInputPolicy", _Fixed(space), policy_kwargs=policy_kwargs())


def test_a_presence_column_stands_in_for_a_mask() -> None:
    space = spaces.Dict(thing=spaces.Box(-1, 1, (4, 3)))
    schema = EntitySchema.from_space(
        space, features={"thing": ("presence", "x", "y")}, presence={"thing": "presence"}
    )
    kwargs = policy_kwargs(schema=schema, **SMALL)
    model = sb3.PPO(
        "MultiInputPolicy", _Fixed(space), policy_kwargs=kwargs, n_steps=4, batch_size=4
    )
    model.learn(4)


@pytest.mark.parametrize(
    ("algorithm", "options", "action"),
    [
        (sb3.A2C, {"n_steps": 4}, "side"),
        (sb3.DQN, {"learning_starts": 4, "buffer_size": 50, "batch_size": 4}, "side"),
        (sb3.SAC, {"learning_starts": 4, "buffer_size": 50, "batch_size": 4}, "push"),
    ],
    ids=["A2C", "DQN", "SAC"],
)
def test_every_algorithm_learns_saves_and_loads(
    algorithm: Any, options: dict[str, Any], action: str, tmp_path: Any
) -> None:
    kwargs = policy_kwargs(**SMALL, net_arch=[7])
    env = Beacon(junk=np.nan, action=action)
    model = algorithm("MultiInputPolicy", env, policy_kwargs=kwargs, seed=1, **options)
    before = parameters(model)
    model.learn(24)
    after = parameters(model)
    assert any(not torch.equal(before[name], after[name]) for name in before if "encoder" in name)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model")
    observation = observe(5, junk=1e30)
    chosen, _ = model.predict(observation, deterministic=True)
    again, _ = loaded.predict(with_junk(observation, 0.0), deterministic=True)
    np.testing.assert_array_equal(again, chosen)


def test_a_loaded_model_goes_on_learning_as_the_saved_one(tmp_path: Any) -> None:
    model = make_ppo()
    model.learn(32)
    model.save(tmp_path / "model")
    copies = [sb3.PPO.load(tmp_path / "model", env=make_ppo().env) for _ in range(2)]
    for copy in copies:
        assert all(
            torch.equal(value, parameters(model)[name]) for name, value in parameters(copy).items()
        )
        copy.set_random_seed(5)
        copy.learn(16, reset_num_timesteps=False)
        assert copy.num_timesteps == 48
    first, second = map(parameters, copies)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_environment_s_own_schema_is_found_through_wrappers() -> None:
    schema = EntitySchema.from_space(Beacon().observation_space, positions={"beacon": ("f0",)})

    class Described(Beacon):
        entity_schema = schema

    wrapped = gymnasium.wrappers.TimeLimit(Described(), 9)
    assert schema_of(wrapped) == schema
    assert schema_of(DummyVecEnv([Described])) == schema
    assert schema_of(Beacon()) is None
    kwargs = policy_kwargs(wrapped, d_model=20, net_arch={"pi": (3,), "vf": ()})
    assert kwargs["features_extractor_kwargs"] == {"schema": schema, "d_model": 20}
    assert kwargs["net_arch"] == {"pi": (3,), "vf": ()}
