import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntitySchema, PerEntity
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe, permuted, with_junk

pytest.importorskip("ray.rllib", reason="ray[rllib] is not installed")

os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # a busy machine takes its time

with warnings.catch_warnings():  # the library's own deprecations
    warnings.simplefilter("ignore")
    import ray
    from ray.rllib.algorithms.ppo import PPO, PPOConfig
    from ray.rllib.core.columns import Columns

    from entity_encoder.integrations.rllib import EntityLearner, EntityRLModule, configure

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]


class RayBeacon(Beacon):
    """The toy, made as RLlib makes environments."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(**config)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def module(
    action_space: spaces.Space[Any] | None = None,
    *,
    inference_only: bool = False,
    **options: Any,
) -> Any:
    torch.manual_seed(7)
    return EntityRLModule(
        observation_space=Beacon().observation_space,
        action_space=action_space or spaces.Discrete(3),
        inference_only=inference_only,
        model_config={"entity_encoder": {**SMALL, **options}},
    )


def tensors(observation: dict[str, np.ndarray]) -> dict[str, Any]:
    return {Columns.OBS: {key: torch.as_tensor(value) for key, value in observation.items()}}


def probabilities(net: Any, observation: dict[str, np.ndarray]) -> torch.Tensor:
    logits = net.forward_inference(tensors(observation))[Columns.ACTION_DIST_INPUTS]
    probs: torch.Tensor = logits.softmax(-1)
    return probs


@pytest.mark.parametrize("junk", [1e30, np.nan])
def test_what_absent_slots_hold_changes_no_distribution(junk: float) -> None:
    net, observation = module(), observe(7)
    expected = probabilities(net, observation)
    assert torch.equal(probabilities(net, with_junk(observation, junk)), expected)


def test_the_order_of_entities_changes_nothing() -> None:
    net, observation = module(), observe(7)
    shuffled, _ = permuted(observation)
    torch.testing.assert_close(probabilities(net, shuffled), probabilities(net, observation))


def test_embeddings_save_the_critic_a_pass() -> None:
    net, passes = module(), []
    net.encoder.register_forward_hook(lambda *_: passes.append(1))
    batch = tensors(observe(5))
    out = net.forward_train(batch)
    values = net.compute_values(batch, embeddings=out[Columns.EMBEDDINGS])
    assert (values.shape, len(passes)) == ((5,), 1)
    assert torch.equal(net.compute_values(batch), values)


def test_a_critic_may_see_more() -> None:
    schema = EntitySchema.from_space(Beacon().observation_space, critic_only=("rock",))
    for given in (schema, schema.to_dict()):
        net, observation = module(schema=given), observe(5)
        changed = {**observation, "rock": observation["rock"] + 1}
        assert torch.equal(probabilities(net, changed), probabilities(net, observation))
        out = [net.forward_train(tensors(seen)) for seen in (observation, changed)]
        assert Columns.EMBEDDINGS not in out[0]
        values = [net.compute_values(tensors(seen)) for seen in (observation, changed)]
        assert not torch.equal(values[0], values[1])


def test_copies_that_only_act_have_no_value_head() -> None:
    full, light = module(), module(inference_only=True)
    assert not hasattr(light, "vf")
    light.set_state(full.get_state(inference_only=True))
    observation = observe(5)
    assert torch.equal(probabilities(light, observation), probabilities(full, observation))


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.MultiDiscrete([2, 3, 4]), (6, 3)),
        (PerEntity("beacon", 5, 3), (6, 5)),
        (spaces.Box(10, 30, (2,)), (6, 2)),
        (spaces.Discrete(3), (6,)),
    ],
    ids=["MultiDiscrete", "PerEntity", "Box", "Discrete"],
)
def test_every_action_space_has_its_distribution(space: Any, shape: tuple[int, ...]) -> None:
    net = module(space)
    inputs = net.forward_exploration(tensors(observe(6)))[Columns.ACTION_DIST_INPUTS]
    distribution = net.get_exploration_action_dist_cls().from_logits(inputs)
    action = distribution.sample()
    assert action.shape == distribution.to_deterministic().sample().shape == shape
    assert distribution.logp(action).shape == distribution.entropy().shape == (6,)
    torch.testing.assert_close(distribution.kl(distribution), torch.zeros(6))
    if isinstance(space, spaces.Box):  # RLlib scales from [-1, 1] to the bounds
        assert bool((inputs[:, :2].abs() < 0.5).all())
        assert bool((inputs[:, 2:] == 0).all())
    if isinstance(space, spaces.MultiDiscrete):
        assert net.action_dist_cls.required_input_dim(space) == inputs[0].numel()


class Watch(EntityLearner):
    """Keep the ratios of all minibatches, and the passes of the encoder."""

    ratios: list[float]
    passes: list[int]

    def build(self) -> None:
        super().build()
        self.ratios, self.passes = [], []
        encoder = self.module["default_policy"].unwrapped().encoder
        encoder.register_forward_hook(lambda _, __, out: self.passes.append(len(out.pooled)))

    def compute_loss_for_module(self, *, batch: Any, fwd_out: Any, **options: Any) -> Any:
        net = self.module["default_policy"].unwrapped()
        dist = net.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        change = dist.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP]
        mask = batch.get(Columns.LOSS_MASK, torch.ones_like(change, dtype=torch.bool))
        self.ratios.append(float(change[mask].abs().max()))
        return super().compute_loss_for_module(batch=batch, fwd_out=fwd_out, **options)


def make(config: dict[str, Any] | None = None, *, lr: float = 1e-3, **options: Any) -> Any:
    """Return an algorithm that acts and learns in this process."""
    ppo = PPOConfig().environment(RayBeacon, env_config=config or {})
    ppo.env_runners(num_env_runners=0, num_envs_per_env_runner=4)
    ppo.debugging(seed=3, log_level="ERROR")
    options = {"batch": 48, "minibatch": 16, "epochs": 2} | options
    ppo.training(
        lr=lr,
        train_batch_size_per_learner=options["batch"],
        minibatch_size=options["minibatch"],
        num_epochs=options["epochs"],
    )
    ppo = configure(ppo, **SMALL)
    ppo.learners(learner_class=Watch)
    return ppo.build_algo()


def learner(algorithm: Any) -> Any:
    return algorithm.learner_group._learner


def weights(algorithm: Any) -> dict[str, np.ndarray]:
    state: dict[str, np.ndarray] = learner(algorithm).module["default_policy"].get_state()
    return state


@pytest.mark.parametrize("junk", [1e30, np.nan])
@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_what_absent_slots_hold_changes_no_learning(
    cluster: None, junk: float, action: str
) -> None:
    states = []
    for content in (0.0, junk):
        algorithm = make({"junk": content, "action": action})
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002 (RLlib shuffles minibatches with it)
        algorithm.train()
        algorithm.train()
        states.append(weights(algorithm))
        algorithm.stop()
    for name in states[0]:
        np.testing.assert_array_equal(states[0][name], states[1][name], err_msg=name)


def test_a_rollout_is_learned_from_at_ratio_one_with_one_pass_per_minibatch(
    cluster: None,
) -> None:
    algorithm = make(lr=0.0)
    for _ in range(2):
        algorithm.train()
    watch = learner(algorithm)
    assert len(watch.ratios) >= 2 * 2 * 3
    assert max(watch.ratios) < 1e-6
    # Per iteration: one pass for the advantages, over all steps and one more per episode; then
    # one per minibatch.
    assert len(watch.passes) == len(watch.ratios) + 2
    norm = watch.module["default_policy"].encoder.group_norms[0]
    acting = algorithm.env_runner.module.encoder.group_norms[0]
    assert norm.count > 0
    torch.testing.assert_close(acting.mean, norm.mean)  # weights travel as float32
    algorithm.stop()


def test_illegal_actions_are_never_taken(cluster: None) -> None:
    algorithm = make({"legal": True})
    for episode in algorithm.env_runner.sample(num_timesteps=40, random_actions=False):
        legal = np.asarray(episode.get_observations()["action_mask"])[:-1]
        taken = np.asarray(episode.get_actions())
        assert (legal[np.arange(len(taken)), taken] == 1).all()
    algorithm.stop()


def test_saved_and_restored_it_goes_on(cluster: None, tmp_path: Any) -> None:
    algorithm = make()
    algorithm.train()
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    expected = weights(algorithm)
    algorithm.stop()
    restored = PPO.from_checkpoint(str(tmp_path / "checkpoint"))
    got = weights(restored)
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
    restored.train()
    assert any((weights(restored)[name] != expected[name]).any() for name in expected)
    restored.stop()
    from ray.rllib.core.rl_module.rl_module import RLModule

    path = tmp_path / "checkpoint/learner_group/learner/rl_module/default_policy"
    net = RLModule.from_checkpoint(str(path))
    assert probabilities(net, observe(3)).shape == (3, 3)


def test_a_short_run_learns(cluster: None) -> None:
    algorithm = make(lr=1e-2, batch=240, minibatch=60, epochs=6)
    for _ in range(6):
        result = algorithm.train()
    assert result["env_runners"]["episode_return_mean"] > 2  # of 3; chance gives 1
    algorithm.stop()


def test_two_learners_agree_and_two_processes_act(cluster: None) -> None:
    config = PPOConfig().environment("entity_encoder.envs:Entity/FloorIsLava-v0")
    config.env_runners(num_env_runners=2, num_envs_per_env_runner=4)
    config.learners(num_learners=2)
    config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=2)
    algorithm = configure(config, **SMALL).build_algo()
    for _ in range(2):
        algorithm.train()
    states = [
        result.get() if hasattr(result, "get") and callable(result.get) else result
        for result in algorithm.learner_group.foreach_learner(
            lambda learner: learner.module["default_policy"].unwrapped().get_state()
        )
    ]
    assert len(states) == 2
    for name in states[0]:
        np.testing.assert_array_equal(states[0][name], states[1][name], err_msg=name)
    assert states[0]["encoder.group_norms.0.count"] >= 2 * 2 * 64  # one player per observation
    algorithm.stop()


def test_the_example_runs_on_two_processes(cluster: None, tmp_path: Any) -> None:
    from examples.rllib_cluster import main

    options = ["--env-runners", "2", "--iterations", "2", "--batch", "128", "--checkpoint"]
    means = main([*options, str(tmp_path / "checkpoint")])
    assert len(means) == 2
    assert all(0 <= mean <= 1 for mean in means)


def test_the_configuration_is_the_usual_ppo() -> None:
    config = configure(PPOConfig().environment(RayBeacon, env_config={}), normalise=False)
    assert (config.lambda_, config.use_kl_loss, config.vf_clip_param) == (0.95, False, np.inf)
    assert config.learner_class is not EntityLearner
    assert config._rl_module_spec.model_config == {"entity_encoder": {"normalise": False}}
    named = configure(PPOConfig().environment("entity_encoder.envs:Entity/CherryPick-v0"))
    options = named._rl_module_spec.model_config["entity_encoder"]
    assert options["schema"]["groups"][0]["name"] == "cherry"
    plain = configure(PPOConfig().environment("CartPole-v1"))
    assert "schema" not in plain._rl_module_spec.model_config["entity_encoder"]
    unknown = configure(PPOConfig().environment("registered-with-ray"))
    assert "schema" not in unknown._rl_module_spec.model_config["entity_encoder"]


def test_a_space_without_a_mask_is_refused_with_the_key_that_is_missing() -> None:
    with pytest.raises(ValueError, match=r"expected key 'thing_mask'"):
        EntityRLModule(
            observation_space=spaces.Dict(thing=spaces.Box(-1, 1, (4, 3))),
            action_space=spaces.Discrete(2),
        )
