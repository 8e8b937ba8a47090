"""One training in each library, with the encoder or flattened, for `benchmarks.integrations`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.shuffled_tiles import (
    BATCH,
    ENCODER,
    ENTROPY,
    EPOCHS,
    MINIBATCHES,
    NUM_ENVS,
    RATE,
    REWARDS,
    ROLLOUT,
    VALUE,
    ShuffledTiles,
    make_single,
)

__all__ = ["run_ours", "run_rllib", "run_sb3", "run_skrl", "run_tianshou", "run_torchrl"]


def run_ours(steps: int, seed: int, encoder: bool) -> None:
    """Our PPO; there is no flat version of it."""
    from entity_encoder.agents import PPO, PPOConfig

    assert encoder
    config = PPOConfig(
        total_steps=steps,
        seed=seed,
        num_envs=NUM_ENVS,
        rollout_steps=ROLLOUT,
        epochs=EPOCHS,
        minibatch_size=BATCH // MINIBATCHES,
        learning_rate=RATE,
        learning_rate_schedule="constant",
        entropy_coefficient=ENTROPY,
        entropy_schedule="constant",
        threads=1,
        **ENCODER,
    )
    envs = ShuffledTiles(NUM_ENVS, output="torch", autoreset_mode="SameStep")
    PPO(envs, config, progress=False).learn()


def run_sb3(steps: int, seed: int, encoder: bool) -> None:
    """Stable-Baselines3; by itself it flattens and puts two layers of 64 behind."""
    from stable_baselines3 import PPO

    from entity_encoder.integrations.sb3 import (
        GymnasiumVecEnv,
        NormalisationCallback,
        policy_kwargs,
    )

    env = GymnasiumVecEnv(ShuffledTiles(NUM_ENVS, autoreset_mode="SameStep"))
    model = PPO(
        "MultiInputPolicy",
        env,
        policy_kwargs=policy_kwargs(env, **ENCODER) if encoder else None,
        n_steps=ROLLOUT,
        batch_size=BATCH // MINIBATCHES,
        n_epochs=EPOCHS,
        learning_rate=RATE,
        ent_coef=ENTROPY,
        vf_coef=VALUE,
        seed=seed,
        device="cpu",
    )
    model.learn(steps, callback=NormalisationCallback() if encoder else None)


def run_skrl(steps: int, seed: int, encoder: bool) -> None:
    """Use skrl; by itself it hands one flat vector to the models, here two layers of 64."""
    import skrl
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
    from skrl.trainers.torch import SequentialTrainer
    from skrl.utils import set_seed

    from entity_encoder.integrations.skrl import EntityModel, normalise_between_rollouts, wrap_env

    skrl.logger.setLevel("WARNING")
    set_seed(seed)
    env = wrap_env(ShuffledTiles(NUM_ENVS, autoreset_mode="SameStep"))
    spaces_ = {"observation_space": env.observation_space, "action_space": env.action_space}

    class Policy(CategoricalMixin, Model):
        def __init__(self) -> None:
            Model.__init__(self, **spaces_)
            CategoricalMixin.__init__(self)
            self.net = _mlp(self.num_observations, 8)

        def compute(self, inputs: Any, role: str = "") -> Any:
            return self.net(inputs["observations"]), {}

    class Value(DeterministicMixin, Model):
        def __init__(self) -> None:
            Model.__init__(self, **spaces_)
            DeterministicMixin.__init__(self)
            self.net = _mlp(self.num_observations, 1)

        def compute(self, inputs: Any, role: str = "") -> Any:
            return self.net(inputs["observations"]), {}

    if encoder:
        model = EntityModel.for_env(env, **ENCODER)
        models: dict[str, Any] = {"policy": model, "value": model}
    else:
        models = {"policy": Policy(), "value": Value()}
    agent = PPO(
        models=models,
        memory=RandomMemory(memory_size=ROLLOUT, num_envs=NUM_ENVS),
        cfg=PPO_CFG(
            rollouts=ROLLOUT,
            learning_epochs=EPOCHS,
            mini_batches=MINIBATCHES,
            learning_rate=RATE,
            entropy_loss_scale=ENTROPY,
            value_loss_scale=VALUE,
            experiment={"write_interval": 0, "checkpoint_interval": 0},
        ),
        **spaces_,
    )
    if encoder:
        normalise_between_rollouts(agent)
    trainer: Any = {
        "timesteps": steps // NUM_ENVS,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    SequentialTrainer(env=env, agents=agent, cfg=trainer).train()


def run_torchrl(steps: int, seed: int, encoder: bool) -> None:
    """TorchRL; flat with two layers of 64 in actor and critic."""
    from tensordict.nn import TensorDictModule
    from torch.distributions import Categorical
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from entity_encoder.integrations.torchrl import EntityActorCritic

    torch.manual_seed(seed)
    envs = ShuffledTiles(NUM_ENVS, autoreset_mode="Disabled")
    env = GymWrapper(envs, categorical_action_encoding=True)
    env.set_seed(seed)
    if encoder:
        model = EntityActorCritic.for_env(env, **ENCODER)
        policy, critic, advantage = model.policy, model.value_head, model.gae()
    else:
        keys = ["tile", "tile_mask"]
        policy = ProbabilisticActor(
            TensorDictModule(_Flat(_mlp(32, 8)), in_keys=keys, out_keys=["logits"]),
            in_keys=["logits"],
            distribution_class=Categorical,
            return_log_prob=True,
        )
        critic = ValueOperator(_Flat(_mlp(32, 1)), in_keys=keys)
        advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, deactivate_vmap=True)
    loss = ClipPPOLoss(
        policy,
        critic,
        entropy_coeff=ENTROPY,
        critic_coeff=VALUE,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    optimiser = torch.optim.Adam(loss.parameters(), lr=RATE, eps=1e-5)
    collector = Collector(
        env,
        policy,
        frames_per_batch=BATCH,
        total_frames=steps // BATCH * BATCH,
        auto_register_policy_transforms=False,
    )
    REWARDS.clear()  # the collector has tried one step
    for data in collector:
        with torch.no_grad():
            advantage(data)
        rows = data.reshape(-1)
        for _ in range(EPOCHS):
            for index in torch.randperm(BATCH).split(BATCH // MINIBATCHES):
                losses = loss(rows[index])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimiser.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimiser.step()
        if encoder:
            model.update_statistics(data)
    collector.shutdown()


def run_tianshou(steps: int, seed: int, encoder: bool) -> None:
    """Tianshou; flat with its own Net of two layers of 64."""
    from tianshou.algorithm.modelfree.ppo import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    from entity_encoder.integrations.tianshou import (
        EntityCritic,
        EntityNet,
        entity_policy,
        normalise_between_rollouts,
    )

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (Tianshou shuffles minibatches with it)
    one = make_single()
    if encoder:
        net = EntityNet(one.observation_space, **ENCODER)
        policy: Any = entity_policy(net, one.action_space)
        critic: Any = EntityCritic(net)
    else:
        nets = [Net(state_shape=32, hidden_sizes=(64, 64), activation=nn.Tanh) for _ in range(2)]
        actor = DiscreteActor(preprocess_net=nets[0], action_shape=8, softmax_output=False)
        policy = DiscreteActorPolicy(actor=actor, action_space=one.action_space)
        critic = DiscreteCritic(preprocess_net=nets[1])
    algorithm: Any = PPO(
        policy=policy,
        critic=critic,
        optim=AdamOptimizerFactory(lr=RATE, eps=1e-5),
        max_grad_norm=0.5,
        ent_coef=ENTROPY,
        vf_coef=VALUE,
        max_batchsize=BATCH,
    )
    if encoder:
        normalise_between_rollouts(algorithm)
    env = DummyVectorEnv([lambda: make_single(not encoder)] * NUM_ENVS)
    env.seed(seed)
    collector: Any = Collector(algorithm, env, VectorReplayBuffer(BATCH * 2, NUM_ENVS))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=steps // BATCH * BATCH,
            collection_step_num_env_steps=BATCH,
            update_step_num_repetitions=EPOCHS,
            batch_size=BATCH // MINIBATCHES,
            verbose=False,
            show_progress=False,
        )
    )


def run_rllib(steps: int, seed: int, encoder: bool) -> None:
    """RLlib; it refuses a Dict, so the flat version gets a vector and its default module."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune import register_env

    from entity_encoder.integrations.rllib import configure

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_env("tiles", lambda config: make_single(bool(config["flat"])))
    config = PPOConfig().environment("tiles", env_config={"flat": not encoder})
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=NUM_ENVS)
    config.training(
        lr=RATE,
        train_batch_size_per_learner=BATCH,
        # RLlib adds a masked step to every episode: half of the rows where one is one step long.
        minibatch_size=2 * BATCH // MINIBATCHES,
        num_epochs=EPOCHS,
        entropy_coeff=ENTROPY,
        vf_loss_coeff=VALUE,
        grad_clip=0.5,
        lambda_=0.95,
        clip_param=0.2,  # its default is 0.3
        use_kl_loss=False,
        vf_clip_param=float("inf"),
    )
    config.debugging(seed=seed, log_level="ERROR")
    algorithm = (configure(config, **ENCODER) if encoder else config).build_algo()
    REWARDS.clear()
    while len(REWARDS) < steps:
        algorithm.train()
    algorithm.stop()


class _Flat(nn.Module):
    """Concatenate the table and its mask."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, tile: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat([tile.flatten(-2), mask.float()], dim=-1))
        return out


def _mlp(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)
    )
