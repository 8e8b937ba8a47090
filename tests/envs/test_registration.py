import subprocess
import sys
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from torch import Tensor

import entity_encoder.envs as envs
from entity_encoder.envs import EntityVectorEnv, Group, Rng, State, check_entity_env
from entity_encoder.envs.registration import TASKS, find_task, register_task, register_tasks


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_made_singly_and_in_batches(name: str) -> None:
    single = gymnasium.make(f"Entity/{name}-v0")
    batch = gymnasium.make_vec(f"Entity/{name}-v0", num_envs=3, autoreset_mode="SAME_STEP")
    assert type(batch) is find_task(name)
    assert batch.num_envs == 3
    assert single.observation_space == batch.single_observation_space
    assert single.action_space == batch.single_action_space
    assert single.spec is not None
    assert gymnasium.make(single.spec).observation_space == single.observation_space
    assert "EntityEnv" in single.spec.to_json()


def test_registering_twice_changes_nothing() -> None:
    before = dict(gymnasium.registry)
    register_tasks()
    assert gymnasium.registry == before


def test_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"task must be one of \['CherryPick'.*got 'Minefeild'"):
        find_task("Minefeild")


def test_public_names_are_sorted_and_exist() -> None:
    assert envs.__all__ == sorted(envs.__all__, key=lambda n: (not n.isupper(), n))
    assert all(hasattr(envs, name) for name in envs.__all__)


def test_top_level_import_names_the_right_one() -> None:
    code = "import envs"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "ImportError: import entity_encoder.envs, not envs" in result.stderr


def test_importing_gymnasium_alone_does_not_import_us() -> None:
    code = (
        "import sys, gymnasium; assert 'entity_encoder' not in sys.modules, 1; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Still(EntityVectorEnv):
    """Nothing moves, and the third step ends it."""

    def __init__(self, num_envs: int = 1, *, stones: int = 3, **options: Any) -> None:
        super().__init__(
            num_envs, groups=(Group("stone", stones),), action_space=spaces.Discrete(2), **options
        )

    def initial(self, rng: Rng) -> State:
        return {"here": rng.uniform(1)}

    def transition(self, state: State, action: Tensor, rng: Rng) -> Any:
        return state, action.float(), state["elapsed"] >= 2, None

    def observe(self, state: State) -> dict[str, Tensor]:
        return {"stone": state["here"].new_zeros(len(state["here"]), self.groups[0].slots, 0)}


def test_a_task_of_one_s_own_is_made_singly_and_in_batches() -> None:
    register_task("Registration/Still-v0", Still)
    try:
        single = gymnasium.make("Registration/Still-v0", stones=5)
        batch = gymnasium.make_vec("Registration/Still-v0", num_envs=7, stones=5)
        assert isinstance(batch, Still)
        assert single.get_wrapper_attr("task").groups == batch.groups
        assert single.observation_space == batch.single_observation_space
        assert check_entity_env(batch).episodes == 7 * 25  # three steps and a reset each: 100 / 4
    finally:
        del gymnasium.registry["Registration/Still-v0"]
