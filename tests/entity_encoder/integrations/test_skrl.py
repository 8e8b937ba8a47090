import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder import EntitySchema
from tests.entity_encoder.integrations.toys import (
    SMALL,
    Beacon,
    beacons,
    observe,
    permuted,
    with_junk,
)

pytest.importorskip("skrl", reason="skrl is not installed")

from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from skrl.utils.spaces.torch import flatten_tensorized_space, tensorize_space

from entity_encoder.integrations.skrl import EntityModel, normalise_between_rollouts, wrap_env


def make(
    num_envs: int = 3,
    *,
    config: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """Return environments, a model and a PPO agent."""
    set_seed(7)
    env = wrap_env(beacons(num_envs, AutoresetMode.SAME_STEP, **options))
    net = EntityModel.for_env(env, **SMALL, **(model or {}))
    settings: dict[str, Any] = {
        "rollouts": 6,
        "learning_epochs": 2,
        "mini_batches": 2,
        "entropy_loss_scale": 0.01,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    settings |= config or {}
    agent = PPO(
        models={"policy": net, "value": net},
        memory=RandomMemory(memory_size=settings["rollouts"], num_envs=num_envs),
        observation_space=env.observation_space,
        action_space=env.action_space,
        cfg=PPO_CFG(**settings),
    )
    return env, net, agent


def train(env: Any, agent: Any, timesteps: int) -> None:
    cfg = {
        "timesteps": timesteps,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    trainer = SequentialTrainer(env=env, agents=agent, cfg=cfg)
    agent.init(trainer_cfg=trainer.cfg)
    trainer.train()


def flat(net: EntityModel, observation: dict[str, np.ndarray]) -> torch.Tensor:
    """Return what skrl makes of an observation."""
    vector = flatten_tensorized_space(tensorize_space(net.observation_space, observation))
    assert vector is not None
    return vector


def probabilities(net: EntityModel, observation: dict[str, np.ndarray]) -> torch.Tensor:
    distribution, _ = net.compute({"observations": flat(net, observation)}, "policy")
    probs: torch.Tensor = distribution.probs.detach()
    return probs


def test_the_flat_vector_is_cut_into_the_observation() -> None:
    _, net, _ = make()
    observation = observe(4)
    parts = net.read(flat(net, observation))
    for key, value in observation.items():
        np.testing.assert_array_equal(parts[key], value)


@pytest.mark.parametrize("junk", [1e30, np.nan])
@pytest.mark.parametrize("action", ["side", "point", "push"])
def test_what_absent_slots_hold_changes_no_distribution_and_no_learning(
    junk: float, action: str
) -> None:
    states = []
    for content in (0.0, junk):
        env, net, agent = make(action=action, junk=content)
        normalise_between_rollouts(agent)
        train(env, agent, 12)  # two rollouts, eight gradient steps
        states.append(net.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    if action != "push":
        observation = observe(5, action=action)
        expected = probabilities(net, observation)
        assert torch.equal(probabilities(net, with_junk(observation, junk)), expected)


def test_the_order_of_entities_changes_nothing() -> None:
    _, net, _ = make()
    observation = observe(7)
    shuffled, _ = permuted(observation)
    torch.testing.assert_close(probabilities(net, shuffled), probabilities(net, observation))


def count_passes(net: EntityModel) -> list[int]:
    passes: list[int] = []
    net.encoder.register_forward_hook(lambda _, __, out: passes.append(len(out.pooled)))
    return passes


def test_one_pass_per_minibatch_and_per_step_serves_policy_and_value() -> None:
    env, net, agent = make()
    passes = count_passes(net)
    train(env, agent, 6)
    # 6 steps of 3 environments and the value of the last observation; then 2 epochs of two
    # minibatches of 9.
    assert passes == [3] * 7 + [9] * 4


def test_an_encoding_is_never_served_after_what_it_depends_on_has_changed() -> None:
    _, net, _ = make()
    passes = count_passes(net)
    vector = flat(net, observe(4))
    for change in ("none", "nothing", "input", "weights", "statistics", "gradients", "training"):
        if change == "input":
            vector[0, 0] += 1
        elif change == "weights":
            torch.optim.SGD(net.parameters(), lr=0.1).step()
            with torch.no_grad():
                next(net.encoder.parameters()).mul_(1.5)
        elif change == "statistics":
            net.encoder.update_statistics(net.read(vector))
        elif change == "training":
            net.eval()
        with torch.set_grad_enabled(change != "gradients"):
            net.act({"observations": vector}, role="policy")
            net.act({"observations": vector}, role="value")
        passes.append(-1)
    # Each -1 ends one round: passes are made at first and after each change, once.
    rounds = " ".join(map(str, passes)).split("-1")[:-1]
    assert [len(entry.split()) for entry in rounds] == [1, 0, 1, 1, 1, 1, 1]


def test_a_rollout_is_learned_from_at_ratio_one() -> None:
    env, net, agent = make(16, config={"learning_rate": 0.0, "rollouts": 4})
    normalise_between_rollouts(agent)
    ratios: list[float] = []
    record = net.act

    def act(inputs: dict[str, Any], *, role: str = "") -> Any:
        out = record(inputs, role=role)
        if "taken_actions" in inputs and role == "policy":
            ratios.append(float(out[1]["log_prob"].detach().mean()))
        return out

    net.__dict__["act"] = act
    stored: list[float] = []
    learn = agent.update

    def update(**kwargs: Any) -> None:
        stored.append(float(agent.memory.get_tensor_by_name("log_prob").mean()))
        learn(**kwargs)

    vars(agent)["update"] = update
    train(env, agent, 8)
    assert net.encoder.group_norms[0].count > 0
    # Over both minibatches of an epoch, the mean log-probability is the stored one.
    epochs = torch.tensor(ratios).reshape(2, 2, 2).mean(2)
    torch.testing.assert_close(
        epochs, torch.tensor(stored)[:, None].expand(2, 2), atol=1e-6, rtol=0
    )


def test_statistics_begin_with_the_first_observations_and_grow_after_learning() -> None:
    env, net, agent = make(16, config={"rollouts": 2})
    normalise_between_rollouts(agent)
    means: list[torch.Tensor] = []
    net.encoder.register_forward_hook(
        lambda *_: means.append(net.encoder.group_norms[0].mean.clone())
    )
    train(env, agent, 4)
    # Two steps, the last value, four minibatches; twice.
    assert len(means) == 14
    for first, last in ((0, 6), (7, 13)):
        assert all(torch.equal(mean, means[first]) for mean in means[first : last + 1])
    assert bool((means[0] != 0).any())
    assert not torch.equal(means[0], means[7])


def test_without_the_call_or_with_few_environments_the_first_rollout_is_not_normalised() -> None:
    for enable in (False, True):
        env, net, agent = make(3)
        if enable:
            normalise_between_rollouts(agent)
        train(env, agent, 6)
        assert bool(net.encoder.group_norms[0].count > 0) == enable


def test_illegal_actions_are_never_taken() -> None:
    env, net, agent = make(legal=True)
    train(env, agent, 6)
    observation = net.read(agent.memory.get_tensor_by_name("observations"))
    taken = agent.memory.get_tensor_by_name("actions").long()
    assert bool((observation["action_mask"].gather(-1, taken) == 1).all())


def test_actions_are_clipped_into_their_bounds_on_their_way_to_the_environment() -> None:
    envs = beacons(2, AutoresetMode.SAME_STEP, action="push")
    seen: list[Any] = []
    step = envs.step

    def watch(actions: Any) -> Any:
        seen.append(actions)
        return step(actions)

    vars(envs)["step"] = watch
    env = wrap_env(envs)
    env.reset()
    env.step(torch.tensor([[-3.0], [0.4]]))
    np.testing.assert_allclose(seen[0], [[-1.0], [0.4]])


def test_evaluation_takes_the_likeliest_action() -> None:
    _, net, _ = make(action="push")
    _, outputs = net.act({"observations": flat(net, observe(4))}, role="policy")
    mean = net.distribution()
    assert outputs["mean_actions"].shape == (4, 1)
    assert mean.stddev.shape == (4, 1)
    _, net, _ = make()
    net.act({"observations": flat(net, observe(4))}, role="policy")
    assert bool(torch.isnan(net.distribution().stddev))


class Crew(Beacon):
    """Several choices at once."""

    def __init__(self) -> None:
        super().__init__(box_masks=True)
        self.action_space = spaces.MultiDiscrete([2, 3, 4])


def test_several_choices_at_once_have_one_log_probability() -> None:
    space = Crew()
    net = EntityModel(
        observation_space=space.observation_space, action_space=space.action_space, **SMALL
    )
    vector = flat(net, observe(4, box_masks=True))
    actions, outputs = net.act({"observations": vector}, role="policy")
    assert actions.shape == (4, 3)
    assert outputs["log_prob"].shape == net.get_entropy().shape == (4, 1)
    again = {"observations": vector, "taken_actions": actions.float()}
    _, same = net.act(again, role="policy")
    assert torch.equal(same["log_prob"], outputs["log_prob"])
    assert net.random_act({"observations": vector})[0].shape == (4, 3)


def test_a_critic_may_see_more() -> None:
    schema = EntitySchema.from_space(
        Beacon(box_masks=True).observation_space, critic_only=("rock",)
    )
    _, net, _ = make(model={"schema": schema})
    observation = observe(5)
    changed = {**observation, "rock": observation["rock"] + 1}
    assert torch.equal(probabilities(net, changed), probabilities(net, observation))
    values = [
        net.act({"observations": flat(net, seen)}, role="value")[0]
        for seen in (observation, changed)
    ]
    assert not torch.equal(values[0], values[1])


def test_saved_and_loaded_it_goes_on_as_before(tmp_path: Any) -> None:
    env, net, agent = make()
    normalise_between_rollouts(agent)
    train(env, agent, 12)
    agent.save(str(tmp_path / "agent.pt"))
    states = []
    for _ in range(2):
        env, other, resumed = make()
        normalise_between_rollouts(resumed)
        resumed.load(str(tmp_path / "agent.pt"))
        expected = net.state_dict()
        assert all(torch.equal(v, expected[k]) for k, v in other.state_dict().items())
        train(env, resumed, 6)
        states.append(other.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(
        states[0]["value_head.0.weight"], net.state_dict()["value_head.0.weight"]
    )


def test_a_model_that_has_acted_can_be_copied() -> None:
    _, net, _ = make()
    vector = flat(net, observe(3))
    net.act({"observations": vector}, role="policy")
    twin = copy.deepcopy(net)
    assert torch.equal(
        twin.act({"observations": vector}, role="value")[0],
        net.act({"observations": vector}, role="value")[0],
    )


def test_a_short_run_learns() -> None:
    config = {
        "rollouts": 16,
        "learning_epochs": 4,
        "mini_batches": 4,
        "learning_rate": 1e-2,
        "value_loss_scale": 0.5,
    }
    env, net, agent = make(16, config=config)
    train(env, agent, 80)
    probs = probabilities(net, observe(200))
    right = observe(200)
    lit = right["beacon"][..., 1] * right["beacon_mask"] == 1
    side = right["beacon"][..., 0][lit].astype(int) + 1
    assert (probs.argmax(1).numpy() == side).mean() > 0.9


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_another_autoreset_mode_is_refused(mode: AutoresetMode) -> None:
    with pytest.raises(ValueError, match=r"must be .*SAME_STEP, got .*autoreset_mode=\"SameStep\""):
        wrap_env(beacons(2, mode))


def test_masks_that_skrl_cannot_carry_are_refused_with_the_wrapper() -> None:
    env = Beacon()
    with pytest.raises(ValueError, match=r"mask 'beacon_mask' must be declared as Box.*wrap_env"):
        EntityModel(observation_space=env.observation_space, action_space=env.action_space)


def test_our_environments_bring_their_schema() -> None:
    pytest.importorskip("entity_encoder.envs")
    envs = gymnasium.make_vec("Entity/Minefield-v0", 4, autoreset_mode="SameStep")
    env = wrap_env(envs)
    net = EntityModel.for_env(env, **SMALL)
    assert net.encoder.schema == envs.entity_schema  # type: ignore[attr-defined]
    observation, _ = env.reset()
    actions, _ = net.act({"observations": observation}, role="policy")
    env.step(actions)
