import dataclasses
from typing import Any

import pytest
import torch

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.snapshot import capture, restore
from tests.cases.toys import Toy


def make(**settings: Any) -> PPO:
    small = {"num_envs": 3, "rollout_steps": 6, "d_model": 8, "n_heads": 2, "n_layers": 1}
    config = PPOConfig(**{**small, "total_steps": 36, "threads": 1, **settings})
    return PPO([Toy] * 3, config, progress=False)


def test_a_snapshot_does_not_change_with_the_agent() -> None:
    agent = make()
    snapshot = capture(agent)
    before = {name: x.clone() for name, x in snapshot.weights.items()}
    agent.learn()
    assert snapshot.about["step"] == snapshot.state["steps"] == 0
    assert all(torch.equal(x, before[name]) for name, x in snapshot.weights.items())
    assert restore(agent, snapshot.weights, snapshot.state, rank=0) == []
    assert agent.steps == 0
    assert not agent.started
    twin = make().learn().policy.state_dict()
    again = agent.learn().policy.state_dict()
    assert all(torch.equal(x, twin[name]) for name, x in again.items())


def test_random_numbers_of_another_device_begin_anew_and_it_says_so() -> None:
    agent = make().learn()
    snapshot = capture(agent)
    state = {**snapshot.state, "device": "cuda"}
    other = make(total_steps=54)
    assert restore(other, snapshot.weights, state, rank=0) == ["random numbers begin anew on cpu"]
    old, new = (a.generators["actions"].get_state() for a in (agent, other))
    assert not torch.equal(old, new)
    assert other.learn().steps == 54


def test_a_process_that_was_not_there_begins_new_episodes() -> None:
    agent = make().learn()
    snapshot = capture(agent)
    other = make(total_steps=54)
    notes = restore(other, snapshot.weights, snapshot.state, rank=1)
    assert notes == ["process 1 begins new episodes: there were fewer processes"]
    assert not other.started
    assert other.steps == 36
    assert float(other.reward_scale.factor) == float(agent.reward_scale.factor)
    assert other.learn().steps == 54


def test_a_recurrent_memory_is_part_of_the_state() -> None:
    agent = make(recurrent=4).learn()
    other = make(recurrent=4)
    restore(other, *_parts(agent), rank=0)
    assert agent.collector.state is not None
    assert other.collector.state is not None
    assert torch.equal(agent.collector.state, other.collector.state)
    config = dataclasses.replace(agent.config, total_steps=72)
    agent.config = other.config = config
    first, second = agent.learn().policy.state_dict(), other.learn().policy.state_dict()
    assert all(torch.equal(x, second[name]) for name, x in first.items())


def _parts(agent: PPO) -> tuple[Any, Any]:
    snapshot = capture(agent)
    return snapshot.weights, snapshot.state


def test_weights_of_another_policy_are_refused() -> None:
    with pytest.raises(ValueError, match="must have the names of this policy"):
        restore(make(), *_parts(make(n_layers=2)), rank=0)
