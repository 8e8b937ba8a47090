import subprocess
import sys

import gymnasium
import pytest

import entity_encoder.envs as envs
from entity_encoder.envs.registration import TASKS, find_task, register_tasks


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
