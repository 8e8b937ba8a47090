from typing import Any

import pytest
import torch

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.collect import Collector
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.halves import Halves, parts_of
from entity_encoder.agents.making import make_training_environments
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.workers import FactoryVectorEnv
from tests.cases.toys import Counter, Toy, counters

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"d_model": 8, "n_heads": 2, "n_layers": 1}


def collector(envs: Environments | Halves, **options: Any) -> Collector:
    torch.manual_seed(0)
    policy = EntityPolicy(envs.schema, envs.action_space, **SMALL, **options)
    return Collector(policy, envs, 6, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", [{}, {"recurrent": 4}])
def test_every_environment_sees_what_it_would_see_otherwise(options: dict[str, Any]) -> None:
    # Counters take no notice of actions, so whole rollouts can be compared.
    lengths = [3, 2, 4, 1, 5]
    whole = Environments(counters(lengths, "SAME_STEP", truncates=True))
    halves = Halves(
        [
            Environments(counters(lengths[:2], "SAME_STEP", truncates=True)),
            Environments(counters(lengths[2:], "SAME_STEP", truncates=True)),
        ]
    )
    found = []
    for envs in (whole, halves):
        envs.reset(seed=0)
        worker = collector(envs, **options)
        worker.collect()
        found.append(worker.collect())
    for name in ("reward", "valid", "begins", "truncated", "value", "next_value"):
        assert torch.equal(getattr(found[0], name), getattr(found[1], name)), name
    for name, seen in found[0].observation.items():
        assert torch.equal(seen.nan_to_num(), found[1].observation[name].nan_to_num())
    scores = [done.outcomes["score"].nan_to_num() for done in found]
    assert torch.equal(*scores)
    index, _, _ = found[0].finals()
    other, _, _ = found[1].finals()
    assert sorted(index.tolist()) == sorted(other.tolist())


def test_one_half_steps_while_actions_for_the_other_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    halves = Halves([Environments(FactoryVectorEnv([lambda: Counter(9)])) for _ in range(2)])
    halves.reset(seed=0)
    worker = collector(halves)
    events: list[str] = []
    for number, part in enumerate(halves.parts):
        for name in ("send", "receive"):
            call = getattr(part, name)

            def noting(*given: Any, call: Any = call, event: str = f"{name} {number}") -> Any:
                events.append(event)
                return call(*given)

            monkeypatch.setattr(part, name, noting)
    worker.policy.register_forward_hook(lambda *_: events.append("choose"))
    worker.collect()
    begin = ["choose", "send 0", "choose", "send 1"]
    again = ["receive 0", "choose", "send 0", "receive 1", "choose", "send 1"]
    assert events == begin + again * 5 + ["receive 0", "receive 1"]


def test_rows_of_the_parts_follow_each_other() -> None:
    halves = Halves([Environments(counters([2, 2])), Environments(counters([3, 3, 3]))])
    assert [rows for rows, _ in parts_of(halves)] == [slice(0, 2), slice(2, 5)]
    assert halves.num_envs == 5
    alone = Environments(counters([2]))
    assert parts_of(alone) == [(slice(0, 1), alone)]


def test_workers_are_shared_out_among_the_halves() -> None:
    config = PPOConfig(num_envs=5, rollout_steps=3, total_steps=15, workers=3, overlap=True)
    envs = make_training_environments([Toy] * 5, config, device=CPU)
    try:
        assert isinstance(envs, Halves)
        assert [part.num_envs for part in envs.parts] == [2, 3]
        assert [len(part.env._workers) for part in envs.parts] == [1, 2]  # type: ignore[attr-defined]
        whole = Environments(FactoryVectorEnv([Toy] * 5))
        assert torch.equal(envs.reset(seed=7)["mask"], whole.reset(seed=7)["mask"])
    finally:
        envs.close()


def test_training_in_halves_resumes_bit_for_bit(tmp_path: Any) -> None:
    def make(updates: int) -> PPO:
        config = PPOConfig(
            num_envs=4,
            rollout_steps=6,
            total_steps=24 * updates,
            workers=2,
            overlap=True,
            learning_rate_schedule="constant",
            entropy_schedule="constant",
            threads=1,
            **SMALL,
        )
        return PPO([Toy] * 4, config, progress=False)

    agents = [make(3), make(1)]
    try:
        agents[0].learn()
        agents[1].learn()
        agents[1].save(tmp_path / "c")
        resumed = PPO.load(tmp_path / "c", [Toy] * 4, total_steps=72, progress=False)
        agents.append(resumed)
        assert not resumed.notes
        resumed.learn()
        weights = agents[0].policy.state_dict()
        for name, value in resumed.policy.state_dict().items():
            assert torch.equal(value, weights[name]), name
    finally:
        for agent in agents:
            agent.envs.close()


def test_a_state_of_other_parts_is_not_taken() -> None:
    halves = Halves([Environments(FactoryVectorEnv([Toy])) for _ in range(2)])
    halves.reset(seed=0)
    whole = Environments(FactoryVectorEnv([Toy, Toy]))
    whole.reset(seed=0)
    assert not halves.set_state(whole.get_state())
    assert not whole.set_state(halves.get_state())
    silent = Halves([Environments(counters([2])), Environments(counters([2]))])
    silent.reset(seed=0)
    assert not silent.set_state(silent.get_state())


def test_overlap_needs_two_workers() -> None:
    with pytest.raises(ValueError, match="overlap must go with at least 2 workers, got 1"):
        PPOConfig(workers=1, overlap=True)
