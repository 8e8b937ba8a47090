"""Looking at environments, and the list of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from entity_encoder.agents.cli import main
from entity_encoder.agents.cli.tasks import (
    action_kind,
    describe_task,
    find_spec,
    list_tasks,
    task_page,
)
from entity_encoder.spaces import PerEntity, SelectEntity


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (SelectEntity("ball", 3), "point at one ball"),
        (PerEntity("snake", 3, 4), "every snake: 4 choices"),
        (
            PerEntity("ally", 3, 4, target="enemy", target_slots=5),
            "every ally: 4 choices, or one enemy",
        ),
        (spaces.Discrete(7), "7 choices"),
        (spaces.MultiDiscrete([2, 3]), "2 choices of 2, 3"),
        (spaces.MultiBinary(5), "5 switches"),
        (spaces.Box(-1, 1, (2, 3)), "2 x 3 numbers"),
        (
            spaces.Dict({"a": spaces.Discrete(2), "b": SelectEntity("x", 3)}),
            "a: 2 choices; b: point at one x",
        ),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))), "2 choices; 3 choices"),
        (spaces.Text(3), "Text"),
    ],
)
def test_actions_are_told_in_words(space: spaces.Space[Any], words: str) -> None:
    assert action_kind(space) == words


def test_a_task_tells_its_groups_and_references() -> None:
    task = describe_task("Entity/Minefield-v0", {"max_mines": 17})
    assert task.groups == {"vehicle": 1, "target": 1, "mine": 17}
    assert task.actions == "3 choices"
    assert task.random_return is not None
    assert task.reference_return is not None
    assert task.random_return < task.reference_return
    assert task.description.endswith(".")


def test_every_task_of_ours_is_listed() -> None:
    from entity_encoder.envs import TASKS

    assert {f"Entity/{name}-v0" for name in TASKS} <= set(list_tasks())


class Foreign(gymnasium.Env[Any, Any]):
    """Somebody else's world.

    More about it.
    """

    observation_space = spaces.Dict(
        bee=spaces.Box(0, 1, (3, 2), np.float32), bee_mask=spaces.MultiBinary(3)
    )
    action_space = spaces.Discrete(2)


def test_an_environment_of_somebody_else_is_described_too() -> None:
    gymnasium.register("Foreign/Bees-v0", lambda **_: Foreign())
    try:
        task = describe_task("Foreign/Bees-v0")
        page = task_page("Foreign/Bees-v0")
    finally:
        del gymnasium.registry["Foreign/Bees-v0"]
    assert task.description == "Somebody else's world."
    assert task.groups == {"bee": 3}
    assert task.reference_return is None
    assert page == "Somebody else's world.\n\nMore about it."


def test_an_unknown_id_gives_the_nearest() -> None:
    with pytest.raises(ValueError, match="got 'Entity/Minefeld-v0'; did you mean 'Entity/Minefie"):
        find_spec("Entity/Minefeld-v0")


def test_an_unknown_option_gives_the_nearest() -> None:
    with pytest.raises(ValueError, match="got 'max_mine'; did you mean 'max_mines'"):
        describe_task("Entity/Minefield-v0", {"max_mine": 3})


def test_a_fault_of_the_environment_is_not_taken_for_a_wrong_option() -> None:
    class Broken(Foreign):
        def __init__(self) -> None:
            raise TypeError("two plus")

    gymnasium.register("Foreign/Broken-v0", lambda **_: Broken())
    try:
        with pytest.raises(TypeError, match="two plus"):
            describe_task("Foreign/Broken-v0")
    finally:
        del gymnasium.registry["Foreign/Broken-v0"]


def test_the_list_names_every_task_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0
    text = capsys.readouterr().out
    assert text.count("\nEntity/Minefield-v0\n") == 1
    assert "actions: point at one cherry; entities: 32 cherry" in text


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "--json"]) == 0
    tasks = {task["id"]: task for task in json.loads(capsys.readouterr().out)}
    assert tasks["Entity/FloorIsLava-v0"]["groups"]["lava"] == 7


def test_the_page_of_one_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "Entity/Minefield-v0"]) == 0
    text = capsys.readouterr().out
    assert task_page("Entity/Minefield-v0").splitlines()[0] in text
    assert main(["envs", "Entity/Minefield-v0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == task_page("Entity/Minefield-v0")


def test_what_is_not_installed_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(env: str) -> Any:
        raise ImportError("needs a package: pip install it")

    monkeypatch.setattr("entity_encoder.agents.cli.envs.describe_task", missing)
    assert main(["envs"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("not installed:\n")
    assert "  Entity/Minefield-v0: needs a package: pip install it\n" in text


def test_options_and_ids_of_somebody_else_s_module_are_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import gymnasium\n"
        "from tests.agents.cli.test_tasks import Foreign\n"
        "class Hive(Foreign):\n"
        "    def __init__(self, bees=3, render_mode=None):\n"
        "        pass\n"
        "gymnasium.register('Hive-v0', Hive)\n"
    )
    (tmp_path / "hives.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with pytest.raises(ValueError, match=r"\(bees\), got 'bee'; did you mean 'bees'"):
            describe_task("hives:Hive-v0", {"bee": 3})
        with pytest.raises(ValueError, match="got 'hives:Hives-v0'; did you mean 'Hive-v0'"):
            find_spec("hives:Hives-v0")
    finally:
        gymnasium.registry.pop("Hive-v0", None)
