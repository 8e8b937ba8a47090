from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntitySchema
from entity_encoder.agents import collect
from entity_encoder.agents.collect import Collector, count_entities
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.policy import EntityPolicy
from tests.agents.test_environments import Careless
from tests.cases.toys import counters


def make(envs: Environments, **options: Any) -> Collector:
    torch.manual_seed(0)
    policy = EntityPolicy(
        envs.schema, envs.action_space, d_model=8, n_heads=2, n_layers=1, **options
    )
    return Collector(policy, envs, 6, torch.Generator().manual_seed(1))


def test_rollouts_follow_each_other_without_a_gap() -> None:
    envs = Environments(counters([4, 3], "SAME_STEP"))
    envs.reset(seed=0)
    collector = make(envs)
    seen = [collector.collect().observation["entities"][:, :, 0, 0].clone() for _ in range(2)]
    assert torch.cat(seen)[:, 0].tolist() == [0, 1, 2, 3] * 3
    assert torch.cat(seen)[:, 1].tolist() == [0, 1, 2] * 4


def test_the_memory_of_a_rollout_is_used_again() -> None:
    envs = Environments(counters([4, 3], "SAME_STEP"))
    envs.reset(seed=0)
    collector = make(envs)
    place = collector.collect().reward.data_ptr()
    assert collector.collect().reward.data_ptr() == place


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_recurrent_memory_is_that_of_the_episode_alone(mode: str) -> None:
    # Counters repeat themselves: with memory emptied at every beginning, all episodes of an
    # environment have the same values, those of their final observations included.
    envs = Environments(counters([3, 2], mode, truncates=True))
    envs.reset(seed=0)
    collector = make(envs, recurrent=4)
    found: dict[tuple[int, int], set[float]] = {}
    for _ in range(4):
        done = collector.collect()
        for t in range(6):
            for env in range(2):
                if done.valid[t, env]:
                    count = int(done.observation["entities"][t, env, 0, 0])
                    found.setdefault((env, count), set()).add(float(done.value[t, env]))
                    if done.truncated[t, env]:
                        key = (env, count + 1)
                        found.setdefault(key, set()).add(float(done.next_value[t, env]))
    assert {key: len(values) for key, values in found.items()} == {
        (env, count): 1 for env, length in enumerate([3, 2]) for count in range(length + 1)
    }
    assert collector.state is not None


def test_an_error_says_in_which_step_it_happened() -> None:
    env = Careless(autoreset_mode="SAME_STEP")
    envs = Environments(env)
    envs.reset()
    env.rewards = np.array([0.0, np.nan])
    with pytest.raises(ValueError, match="in step 0 of the rollout: reward must be finite"):
        make(envs).collect()


def test_no_legal_action_names_the_environment() -> None:
    class Stuck(Careless):
        def __init__(self) -> None:
            super().__init__(autoreset_mode="SAME_STEP")
            self.single_observation_space = spaces.Dict(
                x=spaces.Box(-1, 1, (1, 1), np.float32),
                x_mask=spaces.MultiBinary(1),
                action_mask=spaces.MultiBinary(2),
            )

        def _observe(self) -> dict[str, Any]:
            mask = np.array([[1, 0], [0, 0]], np.int8)
            return {**super()._observe(), "action_mask": mask}

    envs = Environments(Stuck())
    envs.reset()
    with pytest.raises(ValueError, match=r"in step 0 of the rollout: .*legal.*environment 1"):
        make(envs).collect()


def test_threads_share_only_what_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = Environments(counters([4, 3], "SAME_STEP"))
    envs.reset(seed=0)
    collector = make(envs)
    collector.threads = 3
    used: list[int] = []
    collector.policy.register_forward_hook(lambda *_: used.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    collector.collect()
    assert set(used) == {1}
    monkeypatch.setattr(collect, "MANY_ENTITIES", 2)
    used.clear()
    collector.collect()
    assert set(used) == {3}
    assert torch.get_num_threads() == before


def test_entities_are_counted_over_all_kinds_of_masks() -> None:
    space = spaces.Dict(
        ship=spaces.Box(-1, 1, (3, 1), np.float32),
        ship_mask=spaces.Box(0, 1, (3, 1), np.float32),
        car=spaces.Box(-1, 1, (4, 2), np.float32),
    )
    schema = EntitySchema.from_space(
        space, presence={"car": "there"}, features={"car": ["there", "x"]}
    )
    observation = {
        "ship": torch.zeros(2, 5, 3, 1),
        "ship_mask": torch.ones(2, 5, 3, 1),
        "car": torch.tensor([1.0, 9.0]).expand(2, 5, 4, 2).clone(),
    }
    observation["ship_mask"][0, 0] = 0
    observation["car"][1, 4, 2, 0] = 0
    count = count_entities(schema, observation)
    assert count.shape == (2, 5)
    assert int(count[0, 0]) == 4
    assert int(count[1, 4]) == 6
    assert int(count[0, 1]) == 7
