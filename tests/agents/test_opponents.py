from pathlib import Path

import pytest
import torch
from torch import Tensor

from entity_encoder.agents import PPO, EntityPolicy, PPOConfig, load_policy
from entity_encoder.agents.opponents import FrozenOpponent
from entity_encoder.envs.rng import Rng, seeds_to_keys
from entity_encoder.envs.tasks.skirmish import Skirmish

ENV = Skirmish(1)


def make_policy(recurrent: int = 0, seed: int = 0) -> EntityPolicy:
    torch.manual_seed(seed)
    policy = EntityPolicy(
        ENV.entity_schema,
        ENV.single_action_space,
        d_model=8,
        n_heads=2,
        n_layers=1,
        recurrent=recurrent,
    )
    with torch.no_grad():
        for parameter in policy.parameters():  # from nearly uniform to opinionated
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return policy


def observe(rows: int) -> dict[str, Tensor]:
    env = Skirmish(rows, output="torch")
    env.reset(seed=0)
    for _ in range(8):
        observation = env.step(env.reference_policy(env.state))[0]
    return observation


def rng(rows: int, step: int = 1) -> Rng:
    return Rng(seeds_to_keys(range(rows)), torch.zeros(rows, dtype=torch.int64), step)


def test_actions_are_drawn_with_the_policy_s_probabilities() -> None:
    seen = {key: value[:1].expand(20_000, *value.shape[1:]) for key, value in observe(1).items()}
    policy = make_policy()
    with torch.no_grad():
        probs = policy({key: value[:1] for key, value in seen.items()}).distribution.probs[0]
    action = FrozenOpponent(policy)(seen, rng(20_000))
    shares = torch.nn.functional.one_hot(action, probs.shape[1]).double().mean(0)
    present = seen["ally_mask"][0]
    error = (probs * (1 - probs) / 20_000).sqrt()
    assert ((shares - probs).abs() <= 5 * error + 1e-9)[present].all()
    assert probs[present].amax() < 1.0  # something is left to chance


def test_the_likeliest_actions_on_request() -> None:
    seen, policy = observe(9), make_policy()
    with torch.no_grad():
        expected = policy(seen).distribution.mode()
    opponent = FrozenOpponent(policy, deterministic=True)
    assert torch.equal(opponent(seen, rng(9)), expected)


def test_a_row_s_draw_depends_on_its_own_random_numbers_alone() -> None:
    seen, opponent = observe(9), FrozenOpponent(make_policy())
    action = opponent(seen, rng(9))
    some = slice(1, None, 3)
    part = opponent({key: value[some] for key, value in seen.items()}, rng(9).rows(some))
    assert torch.equal(part, action[some])
    assert not torch.equal(opponent(seen, rng(9, step=2)), action)


def test_it_stays_as_it_was_frozen() -> None:
    seen, policy = observe(9), make_policy()
    opponent = FrozenOpponent(policy)
    before = opponent(seen, rng(9))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    assert torch.equal(opponent(seen, rng(9)), before)
    assert not any(p.requires_grad for p in opponent.policy.parameters())


def test_a_checkpoint_commands_armies_of_other_sizes(tmp_path: Path) -> None:
    config = PPOConfig(
        total_steps=64, num_envs=4, rollout_steps=16, d_model=8, n_heads=2, n_layers=1
    )
    PPO("Entity/Skirmish-v0", config, run_dir=tmp_path / "run", progress=False).learn()
    opponent = FrozenOpponent.load(tmp_path / "run" / "checkpoint", deterministic=True)
    saved = load_policy(tmp_path / "run" / "checkpoint")
    for key, value in opponent.policy.state_dict().items():
        assert torch.equal(value, saved.state_dict()[key])
    env = Skirmish(3, max_units=9, opponent=opponent)
    env.reset(seed=0)
    for _ in range(5):
        env.step(env.reference_policy(env.state))
    assert env.state["enemy_action"].any()


def test_a_policy_with_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="must have no memory to be an opponent, got recurrent=6"):
        FrozenOpponent(make_policy(recurrent=6))
