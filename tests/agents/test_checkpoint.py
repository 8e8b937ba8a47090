import enum
import json
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from entity_encoder.agents import checkpoint
from entity_encoder.agents.checkpoint import (
    load_checkpoint,
    load_state,
    plain,
    save_checkpoint,
    save_state,
    unwrapped_names,
)


def write(path: Path, step: int) -> Path:
    return save_checkpoint(
        path,
        weights={"layer.weight": torch.full((2, 3), float(step))},
        state={"step": step, "moments": [torch.ones(2), (None, "x")]},
        about={"step": step, "schema": {"groups": []}},
    )


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    saved = load_checkpoint(write(tmp_path / "c", 7))
    assert torch.equal(saved.weights["layer.weight"], torch.full((2, 3), 7.0))
    assert saved.state["step"] == 7
    assert saved.state["moments"][1] == (None, "x")
    assert saved.about["schema"] == {"groups": []}


def test_a_new_checkpoint_replaces_the_old_and_leaves_no_rubbish(tmp_path: Path) -> None:
    for step in (1, 2, 2):
        write(tmp_path / "c", step)
    names = sorted(p.name for p in (tmp_path / "c").iterdir())
    assert names == ["checkpoint.json", "state-2-2.pt", "weights-2-2.safetensors"]
    assert load_checkpoint(tmp_path / "c").about["step"] == 2


class KilledError(Exception):
    pass


@pytest.mark.parametrize("call", range(6))
def test_killed_at_any_moment_the_folder_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    write(tmp_path / "c", 1)
    calls = [0]

    def dying(function: object) -> object:
        def wrapper(*arguments: object, **options: object) -> object:
            calls[0] += 1
            if calls[0] == call + 1:
                raise KilledError
            return function(*arguments, **options)  # type: ignore[operator]

        return wrapper

    monkeypatch.setattr(os, "fsync", dying(os.fsync))
    monkeypatch.setattr(os, "replace", dying(os.replace))
    monkeypatch.setattr(checkpoint, "save_file", dying(save_file))
    with pytest.raises(KilledError):
        write(tmp_path / "c", 2)
    monkeypatch.undo()
    step = load_checkpoint(tmp_path / "c").about["step"]
    assert step == (2 if call == 5 else 1)  # the last fsync is that of the folder
    write(tmp_path / "c", 3)
    assert len(list((tmp_path / "c").iterdir())) == 3


def test_a_missing_checkpoint_shows_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must hold checkpoint\.json, got no such folder"):
        load_checkpoint(tmp_path / "nothing")
    write(tmp_path / "run" / "checkpoint", 1)
    with pytest.raises(FileNotFoundError, match=r"did you mean '.*run/checkpoint'\?"):
        load_checkpoint(tmp_path / "run")


def test_damage_is_said_to_be_damage(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", 1)
    files = load_checkpoint(folder).about["files"]
    (folder / files["weights"]).write_bytes(b"junk")
    with pytest.raises(ValueError, match="is damaged"):
        load_checkpoint(folder)
    (folder / files["weights"]).unlink()
    with pytest.raises(ValueError, match=r"is damaged: .*weights-1"):
        load_checkpoint(folder)
    (folder / "checkpoint.json").write_text("{")
    with pytest.raises(ValueError, match=r"is damaged: checkpoint\.json"):
        load_checkpoint(folder)
    write(folder, 2)
    assert load_checkpoint(folder).about["step"] == 2


def test_another_format_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", 1)
    about = json.loads((folder / "checkpoint.json").read_text())
    (folder / "checkpoint.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(ValueError, match="must have format 2, got 99"):
        load_checkpoint(folder)


def test_a_truncated_state_is_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "s.pt", {"a": torch.ones(100)})
    whole = (tmp_path / "s.pt").read_bytes()
    (tmp_path / "s.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"s\.pt must hold plain values"):
        load_state(tmp_path / "s.pt")


class Colour(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int
    where: Path


def test_plain_values_lose_their_types_but_not_their_meaning() -> None:
    got = plain(
        {
            "array": np.arange(3),
            "half": np.float32(0.5),
            "flag": np.bool_(True),
            "queue": deque([1, 2]),
            "colour": Colour.RED,
            "point": Point(3, Path("a/b")),
            "big": 2**127,
        }
    )
    assert got.pop("array").tolist() == [0, 1, 2]
    assert got == {
        "half": 0.5,
        "flag": True,
        "queue": [1, 2],
        "colour": "RED",
        "point": {"x": 3, "where": "a/b"},
        "big": 2**127,
    }


def test_code_is_refused_where_it_stands() -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\] must be made of .* got builtins\.obj"):
        plain({"a": [0, object()]})


def test_plain_tensors_are_copies() -> None:
    source = torch.zeros(2)
    copy = plain(source)
    source += 1
    assert copy.tolist() == [0.0, 0.0]


def test_prefixes_of_wrappers_come_off_in_any_order() -> None:
    x = torch.ones(1)
    names = unwrapped_names({"module._orig_mod.a.b": x, "_orig_mod.c": x, "module_x": x})
    assert list(names) == ["a.b", "c", "module_x"]
