from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from entity_encoder.agents.making import is_array_task, make_environments
from entity_encoder.agents.workers import FactoryVectorEnv
from entity_encoder.envs.registration import find_task, register_task
from tests.cases.toys import Counter, Toy, counters


def test_our_tasks_come_as_tensors_and_waste_no_step_on_resets() -> None:
    env: Any = make_environments("Entity/Minefield-v0", num_envs=3, env_kwargs={"max_mines": 2})
    assert isinstance(env.unwrapped, find_task("Minefield"))
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observation, _ = env.reset(seed=0)
    assert isinstance(observation["mine"], torch.Tensor)
    assert observation["mine"].shape == (3, 2, 2)


def test_other_ids_are_made_one_by_one() -> None:
    gymnasium.register("MakingTest/Toy-v0", entry_point="tests.cases.toys:Toy")
    try:
        env = make_environments("MakingTest/Toy-v0", num_envs=3, env_kwargs={"pad_value": 7.0})
        assert isinstance(env, FactoryVectorEnv)
        assert env.num_envs == 3
        observation, _ = env.reset(seed=0)
        assert (observation["entities"][observation["mask"] == 0] == 7).all()
    finally:
        del gymnasium.registry["MakingTest/Toy-v0"]


def test_objects_and_factories_are_taken_as_they_are() -> None:
    vector = counters([2])
    assert make_environments(vector, num_envs=9) is vector
    env = make_environments([Toy, Toy], num_envs=9)
    assert env.num_envs == 2


def test_workers_are_refused_where_environments_are_stepped_together() -> None:
    with pytest.raises(ValueError, match=r"workers must be 0 for Entity/Minefield-v0, .* got 2"):
        make_environments("Entity/Minefield-v0", num_envs=4, workers=2)
    with pytest.raises(ValueError, match="workers must be 0 for SyncVectorEnv"):
        make_environments(counters([2]), num_envs=4, workers=1)


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'Entity/Minefield-v0'"):
        make_environments("Entity/Minefeld-v0", num_envs=1)


def test_the_module_before_a_colon_is_imported_and_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import gymnasium\ngymnasium.register('Mine-v3', entry_point='tests.cases.toys:Toy')\n"
    (tmp_path / "my_world.py").write_text(code)
    (tmp_path / "my_broken_world.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert make_environments("my_world:Mine-v3", num_envs=3).num_envs == 3
    finally:
        del gymnasium.registry["Mine-v3"]
    with pytest.raises(ValueError, match=r"must name a module before the colon, .* 'my_wrld'"):
        make_environments("my_wrld:Mine-v3", num_envs=1)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        make_environments("my_broken_world:Mine-v3", num_envs=1)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Counter(2), r"an id, a VectorEnv or a list of factories, got a single Counter"),
        ([], r"must hold functions that make environments, got \[\]"),
        ([np.zeros(3)], "must hold functions that make environments"),
    ],
)
def test_anything_else_is_refused(env: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make_environments(env, num_envs=1)


def test_registered_tasks_of_others_are_array_tasks_too() -> None:
    register_task("MakingTest/Field-v0", find_task("Minefield"))
    try:
        env: Any = make_environments("MakingTest/Field-v0", num_envs=3)
        assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        assert is_array_task("MakingTest/Field-v0")
        assert not is_array_task("CartPole-v1")
    finally:
        del gymnasium.registry["MakingTest/Field-v0"]


def test_workers_make_what_was_registered_here_alone() -> None:
    gymnasium.register("MakingTest/Toy-v1", entry_point="tests.cases.toys:Toy")
    try:
        env = make_environments("MakingTest/Toy-v1", num_envs=2, workers=1)
        try:
            observation, _ = env.reset(seed=0)
            assert observation["entities"].shape[0] == 2
        finally:
            env.close()
    finally:
        del gymnasium.registry["MakingTest/Toy-v1"]
