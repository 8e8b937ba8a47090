"""Failure cases of observations on their way through other people's libraries, by their number."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor

from entity_encoder import EntityEncoder, EntitySchema
from entity_encoder.integrations.nested import FlattenKeys
from tests.entity_encoder.integrations.toys import (
    SMALL,
    Beacon,
    beacons,
    observe,
    permuted,
    with_junk,
)

sb3: Any = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
ours: Any = pytest.importorskip("entity_encoder.integrations.sb3")


class Fixed(gymnasium.Env[Any, Any]):
    """An environment that shows what it was given, or samples of its space."""

    def __init__(self, space: spaces.Space[Any], shown: Any = None) -> None:
        self.observation_space: Any = space
        self.action_space: Any = spaces.Discrete(2)
        self.shown = shown

    def _look(self) -> Any:
        return self.observation_space.sample() if self.shown is None else self.shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> Any:
        return self._look(), 1.0, False, False, {}


def ppo(env: Any, **options: Any) -> Any:
    options = {"n_steps": 4, "batch_size": 4, "seed": 1, "device": "cpu"} | options
    options.setdefault("policy_kwargs", ours.policy_kwargs(**SMALL))
    return sb3.PPO("MultiInputPolicy", env, **options)


def features(model: Any, observation: dict[str, np.ndarray]) -> Tensor:
    """Return what SB3 makes of a batch: its own conversion, then the extractor."""
    inputs, _ = model.policy.obs_to_tensor(observation)
    found: Tensor = model.policy.extract_features(inputs)
    return found.detach()


@pytest.mark.parametrize(
    ("space", "fix"),
    [
        (spaces.Sequence(spaces.Box(-1, 1, (3,))), r"SequenceToEntities\(max_entities="),
        (spaces.Graph(spaces.Box(-1, 1, (3,)), None), "GraphToEntities"),
        (
            spaces.Dict(time=spaces.Box(0, 1, (1,)), unit=spaces.Sequence(spaces.Box(-1, 1, (3,)))),
            "no group of entities",
        ),
    ],
    ids=["sequence", "graph", "sequence inside"],
)
def test_gym_02_spaces_of_changing_size_are_refused_with_the_wrapper(
    space: spaces.Space[Any], fix: str
) -> None:
    with pytest.raises(ValueError, match=fix):
        ours.EntityFeaturesExtractor(space)


def test_gym_08_final_observations_are_read_only_where_there_are_some() -> None:
    class Uneven(Beacon):
        """Episodes of 3 steps here, of 6 there."""

        def step(self, action: Any) -> Any:
            *rest, terminated, truncated, info = super().step(action)
            longer = self.episodes == 99
            return *rest, terminated and not longer, truncated and not longer, info

    envs = beacons(2, AutoresetMode.SAME_STEP)
    uneven = Uneven()
    envs.envs[1] = uneven
    env = ours.GymnasiumVecEnv(envs)
    env.reset()
    uneven.episodes = 99
    for _ in range(3):
        _, _, dones, infos = env.step(np.zeros(2, dtype=np.int64))
    assert dones.tolist() == [True, False]
    assert "terminal_observation" not in infos[1]
    final = infos[0]["terminal_observation"]
    assert final["beacon"].shape == (5, 2)
    assert final["time"] == pytest.approx(1.0)


def test_gym_10_stored_observations_are_those_that_were_seen() -> None:
    stored = []
    for copy in (True, False):
        envs = beacons(2, AutoresetMode.SAME_STEP)
        envs.copy = copy
        model = ppo(ours.GymnasiumVecEnv(envs), n_steps=7, batch_size=14)
        model.learn(14)
        stored.append(model.rollout_buffer.observations)
    for key, value in stored[0].items():
        np.testing.assert_array_equal(stored[1][key], value, err_msg=key)
    assert len(np.unique(stored[0]["time"])) == 3


def test_gym_13_one_environment_object_cannot_stand_for_several() -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = ours.ActionMasks(Beacon(legal=True))
    with pytest.raises(ValueError, match="same instance"):
        DummyVecEnv([lambda: env] * 3)


def test_gym_18_the_autoreset_mode_is_never_guessed() -> None:
    envs = beacons(2, AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match=r"must be .*SAME_STEP, got .*NEXT_STEP"):
        ours.GymnasiumVecEnv(envs)
    envs.metadata = {}
    with pytest.raises(ValueError, match="got None"):
        ours.GymnasiumVecEnv(envs)


def test_gym_19_keys_are_looked_up_by_name_whatever_their_order() -> None:
    parts = {
        "zeta": spaces.Box(-1, 1, (4, 3)),
        "zeta_mask": spaces.MultiBinary(4),
        "alpha": spaces.Box(-1, 1, (2, 3)),
        "alpha_mask": spaces.MultiBinary(2),
    }
    forward = spaces.Dict(parts)
    backward = spaces.Dict(dict(reversed(parts.items())), sort_keys=False)
    assert list(forward) != list(backward)
    schema = EntitySchema.from_space(forward)
    kwargs = ours.policy_kwargs(schema=schema, **SMALL)
    one, two = (ppo(Fixed(space), policy_kwargs=kwargs) for space in (forward, backward))
    two.policy.load_state_dict(one.policy.state_dict())
    forward.seed(3)
    samples = [forward.sample() for _ in range(5)]
    batch = {key: np.stack([sample[key] for sample in samples]) for key in forward}
    other = {key: batch[key] for key in backward}
    assert torch.equal(features(two, other), features(one, batch))


def test_gym_19_skrl_flattens_sorted_keys_and_gets_them_back() -> None:
    pytest.importorskip("skrl", reason="skrl is not installed")
    from skrl.utils.spaces.torch import flatten_tensorized_space

    from entity_encoder.integrations.skrl import EntityModel

    toy = Beacon(box_masks=True)
    backward = spaces.Dict(
        dict(reversed(list(toy.observation_space.spaces.items()))), sort_keys=False
    )
    net = EntityModel(observation_space=backward, action_space=toy.action_space, **SMALL)
    observation = {key: torch.as_tensor(value) for key, value in observe(4).items()}
    parts = net.read(flatten_tensorized_space(observation))
    for key, value in observation.items():
        torch.testing.assert_close(parts[key], value.float())


def test_gym_21_type_ids_go_into_a_column_instead_of_a_one_hot() -> None:
    space = spaces.Dict(
        unit=spaces.Box(-1, 1, (4, 2)),
        unit_mask=spaces.MultiBinary(4),
        type_id=spaces.MultiDiscrete([3] * 4),
    )
    with pytest.raises(ValueError, match=r"'type_id' cannot be read.*integer column"):
        ppo(Fixed(space))
    columns = spaces.Dict(unit=spaces.Box(-1, 3, (4, 3)), unit_mask=spaces.MultiBinary(4))
    schema = EntitySchema.from_space(
        columns, features={"unit": ("x", "y", "type")}, categories={"unit": {"type": 3}}
    )
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 4, 3)).astype(np.float32).clip(-1, 1)
    table[..., 2] = rng.integers(3, size=(5, 4))
    batch = {"unit": table, "unit_mask": np.ones((5, 4), dtype=np.int8)}
    env = Fixed(columns, {key: value[0] for key, value in batch.items()})
    model = ppo(env, policy_kwargs=ours.policy_kwargs(schema=schema, **SMALL))
    before = features(model, batch)
    batch["unit"] = table.copy()
    batch["unit"][:, 0, 2] = (table[:, 0, 2] + 1) % 3
    assert bool((features(model, batch) != before).any(1).all())


def test_gym_22_nested_spaces_go_through_with_flat_names() -> None:
    space = spaces.Dict(
        units=spaces.Dict(x=spaces.Box(-1, 1, (4, 3)), mask=spaces.MultiBinary(4)),
        time=spaces.Box(0, 1, (1,)),
    )
    with pytest.raises(NotImplementedError, match="Nested"):
        ppo(Fixed(space))
    env = FlattenKeys(Fixed(space))
    model = ppo(env, policy_kwargs=ours.policy_kwargs(env, **SMALL))
    schema = model.policy.features_extractor.encoder.schema
    assert schema.groups[0].name == "units.x"
    assert schema.groups[0].mask_key == "units.mask"
    model.learn(4)


@pytest.mark.parametrize("box_masks", [True, False])
def test_gym_23_a_normalising_wrapper_leaves_masks_alone(box_masks: bool) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    def make() -> Any:
        return DummyVecEnv([lambda: Beacon(box_masks=box_masks)] * 3)

    if box_masks:  # SB3's own would scale them
        model = ppo(VecNormalize(make()), batch_size=12)
        with pytest.raises(ValueError, match="EntityVecNormalize"):
            model.learn(12)
    else:
        with pytest.raises(ValueError, match=r"MultiBinary|beacon_mask"):
            VecNormalize(make())
    env = ours.EntityVecNormalize(make())
    observation = env.reset()
    for _ in range(9):
        observation, *_ = env.step(np.zeros(3, dtype=np.int64))
        assert set(np.unique(observation["beacon_mask"])) <= {0, 1}
        assert (observation["beacon"][observation["beacon_mask"] == 0] == 0).all()


def test_gym_27_torchrl_stacks_sets_whose_size_changes() -> None:
    pytest.importorskip("torchrl", reason="torchrl is not installed")
    from torchrl.envs import GymWrapper
    from torchrl.envs.utils import check_env_specs

    from entity_encoder.integrations.torchrl import EntityActorCritic

    env = GymWrapper(Beacon(), categorical_action_encoding=True)
    check_env_specs(env)
    model = EntityActorCritic.for_env(env, **SMALL)
    data = env.rollout(10, model.policy, break_when_any_done=False)
    assert data["beacon"].shape == (10, 5, 2)
    assert len(set(data["beacon_mask"].sum(-1).tolist())) > 1
    assert model.value(data)["state_value"].shape == (10, 1)


def test_gym_28_infos_count_only_where_they_are_valid() -> None:
    class Late(Beacon):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            return *rest, {"late": 7.0} if self.elapsed == 2 and self.slots == 5 else info

    envs = beacons(2, AutoresetMode.SAME_STEP)
    envs.envs[0] = Late()
    env = ours.GymnasiumVecEnv(envs)
    env.reset()
    seen = [env.step(np.zeros(2, dtype=np.int64))[3] for _ in range(2)]
    assert "late" not in seen[0][0]
    assert seen[1][0]["late"] == 7.0
    assert "late" not in seen[1][1]


def test_att_13_the_float_mask_of_sb3_still_masks() -> None:
    model = ppo(Beacon())
    observation = observe(6)
    inputs, _ = model.policy.obs_to_tensor(observation)
    floats = {key: value.float() for key, value in inputs.items()}
    bools = {
        key: value == 1 if key.endswith("mask") else value.float() for key, value in inputs.items()
    }
    extractor = model.policy.features_extractor
    assert torch.equal(extractor(floats), extractor(bools))
    assert torch.equal(features(model, observation), extractor(bools))


def test_use_08_a_model_trained_with_few_units_plays_with_many(tmp_path: Any) -> None:
    model = ppo(Beacon(slots=3))
    model.learn(8)
    model.save(tmp_path / "model")
    larger = ours.load_with_slots(sb3.PPO, tmp_path / "model", {"beacon": 8})
    small = model.policy.state_dict()
    assert all(torch.equal(small[k], v) for k, v in larger.policy.state_dict().items())
    observation = observe(4, slots=3)
    wide = {
        **observation,
        "beacon": np.pad(observation["beacon"], ((0, 0), (0, 5), (0, 0))),
        "beacon_mask": np.pad(observation["beacon_mask"], ((0, 0), (0, 5))),
    }
    assert torch.equal(features(larger, wide), features(model, observation))


@pytest.mark.parametrize("junk", [0.0, 1e30, np.nan])
def test_use_18_predictions_do_not_see_padding_and_every_weight_learns(junk: float) -> None:
    model = ppo(Beacon(junk=junk), n_steps=16, batch_size=16)
    extractor = model.policy.features_extractor
    assert extractor.features_dim == extractor.encoder.output_dim
    before = {name: value.clone() for name, value in extractor.named_parameters()}
    model.learn(32)  # two updates
    unchanged = [n for n, v in extractor.named_parameters() if torch.equal(v, before[n])]
    assert unchanged == ["encoder.empty"]  # a lit beacon is always there
    observation = observe(9)
    chosen, _ = model.predict(observation, deterministic=True)
    again, _ = model.predict(with_junk(observation, junk), deterministic=True)
    np.testing.assert_array_equal(again, chosen)
    moved, _ = model.predict(permuted(observation)[0], deterministic=True)
    np.testing.assert_array_equal(moved, chosen)


@pytest.mark.parametrize(("shared", "passes"), [(True, 1), (False, 2)])
def test_use_19_a_shared_encoder_is_evaluated_once_and_learns_from_both_losses(
    shared: bool, passes: int
) -> None:
    kwargs = ours.policy_kwargs(**SMALL) | {"share_features_extractor": shared}
    model = ppo(Beacon(), policy_kwargs=kwargs)
    encoders = [m for m in model.policy.modules() if isinstance(m, EntityEncoder)]
    calls: list[int] = []
    for encoder in encoders:
        encoder.register_forward_hook(lambda *_: calls.append(1))
    inputs, _ = model.policy.obs_to_tensor(observe(8))
    values, log_prob, _ = model.policy.evaluate_actions(inputs, torch.arange(8) % 3)
    assert len(calls) == passes
    reached = []
    for loss in (log_prob.sum(), values.sum()):
        model.policy.zero_grad()
        loss.backward(retain_graph=True)
        reached.append(
            [
                any(p.grad is not None and bool(p.grad.any()) for p in e.parameters())
                for e in encoders
            ]
        )
    assert reached == ([[True], [True]] if shared else [[True, False], [False, True]])
