from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import error

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.envs import EntityParallelEnv, ParallelVectorEnv, find_task
from entity_encoder.schema import EgoFrame
from entity_encoder.spaces import PerEntity

FULL: dict[str, dict[str, Any]] = {
    "Coverage": {"max_agents": 3, "min_agents": 3},
    "MultiSnake": {"num_snakes": 2},
    "Skirmish": {"max_units": 4, "min_units": 4},
}


@pytest.mark.parametrize("name", FULL)
def test_pettingzoo_s_own_test_passes(name: str) -> None:
    pettingzoo = pytest.importorskip("pettingzoo.test")
    pettingzoo.parallel_api_test(EntityParallelEnv(name, **FULL[name]), num_cycles=200)


@pytest.mark.parametrize("name", FULL)
def test_agents_together_do_what_the_joint_action_does(name: str) -> None:
    env = EntityParallelEnv(name)
    make: Any = find_task(name)
    joint = make(1, autoreset_mode="DISABLED")
    group = env.group
    observations, _ = env.reset(seed=3)
    expected, _ = joint.reset(seed=3)
    for _ in range(40):
        present = expected[f"{group}_mask"][0].astype(bool)
        acting = [agent for agent, here in zip(env.possible_agents, present, strict=True) if here]
        assert env.agents == acting
        for agent in env.agents:
            slot = env.possible_agents.index(agent)
            seen = observations[agent]
            assert seen in env.observation_space(agent)
            assert (seen["self"] == expected[group][0, slot]).all()
            assert seen["self_mask"].tolist() == [1]
            others = np.arange(len(present)) != slot
            assert (seen[group] == expected[group][0] * others[:, None]).all()
            assert (seen[f"{group}_mask"] == present * others).all()
            for key in expected.keys() - {group, f"{group}_mask", "action_mask"}:
                assert (seen[key] == expected[key][0]).all()
            if "action_mask" in seen:
                assert (seen["action_mask"] == expected["action_mask"][:, slot]).all()
        action = joint.reference_policy(joint.state).numpy()
        slots = {agent: env.possible_agents.index(agent) for agent in env.agents}
        observations, rewards, terminated, truncated, infos = env.step(
            {agent: action[0, slot : slot + 1] for agent, slot in slots.items()}
        )
        expected, reward, over, cut, info = joint.step(action)
        assert rewards == dict.fromkeys(slots, reward[0])
        for agent, slot in slots.items():
            gone = not expected[f"{group}_mask"][0, slot]
            assert terminated[agent] == (over[0] or gone)
            assert truncated[agent] == (cut[0] and not gone)
            assert infos[agent].get("score") == (info["score"][0] if info else None)
        if over[0] or cut[0]:
            assert env.agents == []
            with pytest.raises(error.ResetNeeded, match="must not follow the end of an episode"):
                env.step({})
            return
    assert name == "MultiSnake"  # the others are over by then


def test_samples_are_legal_for_the_agent() -> None:
    env = EntityParallelEnv("Skirmish", max_units=8)
    observations, _ = env.reset(seed=0)
    attacks = 0
    for step in range(30):
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        masked = {a: env.action_space(a).sample(observations[a]["action_mask"]) for a in env.agents}
        for agent in env.agents:
            for chosen in (actions, masked):
                assert observations[agent]["action_mask"][0, chosen[agent][0]] == 1
            attacks += int(actions[agent][0] > 5)
        observations = env.step(actions)[0]
        if not env.agents:
            observations, _ = env.reset(seed=step)
    assert attacks > 0


def test_what_surrounds_it() -> None:
    env = EntityParallelEnv("Skirmish", max_units=6, min_units=2, render_mode="rgb_array")
    env.reset(seed=1)
    assert env.unwrapped is env
    assert env.max_num_agents == 6
    assert env.num_agents == len(env.agents) <= 6
    space = env.action_space("ally_2")
    assert space is env.action_space("ally_2")
    assert space == PerEntity("self", 1, 6, target="enemy", target_slots=6)
    assert env.entity_schema.frame == EgoFrame("self")
    assert env.entity_schema.action_masks == ("action_mask",)
    frame = env.render()
    assert frame is not None
    assert frame.shape == (520, 480, 3)
    assert EntityParallelEnv("Skirmish").render_mode is None
    env.close()


@pytest.mark.parametrize("name", ["Coverage", "Skirmish"])
def test_agents_learn_with_shared_parameters(name: str) -> None:
    envs = ParallelVectorEnv([partial(EntityParallelEnv, name)] * 2)
    config = PPOConfig(total_steps=400, num_envs=8, rollout_steps=20, d_model=8, n_layers=1)
    agent = PPO(envs, config, progress=False)
    before = [p.detach().clone() for p in agent.policy.parameters()]
    agent.learn()
    assert agent.steps >= 400
    pairs = list(zip(before, agent.policy.parameters(), strict=True))
    assert all(bool(new.isfinite().all()) for _, new in pairs)
    assert any(bool((old != new).any()) for old, new in pairs)


def test_actions_must_be_those_of_the_agents_that_are_there() -> None:
    env = EntityParallelEnv("Coverage", max_agents=2, min_agents=2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"must be those of \['agent_0', 'agent_1'\], got"):
        env.step({"agent_0": 1})
    with pytest.raises(ValueError, match=r"action must be in 0, ..., 4, got 9 in env 0, slot 1"):
        env.step({"agent_0": 1, "agent_1": 9})


def test_a_task_with_one_actor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"every entity of a group act .* got Minefield with Disc"):
        EntityParallelEnv("Minefield")
