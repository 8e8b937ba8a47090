"""The command line as a whole: help everywhere, and bad input as one clear line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from entity_encoder.agents.cli import main
from entity_encoder.agents.cli.main import COMMANDS, build_parsers
from entity_encoder.version import __version__

LAVA = "Entity/FloorIsLava-v0"


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        text = capsys.readouterr().out
        assert left.value.code == 0
        assert f"entity-encoder {name}" in text
        assert "examples:" in text


def test_every_example_can_be_parsed() -> None:
    parser, parsers = build_parsers()
    for name, command in parsers.items():
        lines = (command.epilog or "").splitlines()
        examples = [line.strip() for line in lines if line.strip().startswith("entity-encoder ")]
        assert examples, name
        for example in examples:
            words = example.split("   ")[0].split()[1:]  # a remark stands behind wide space
            _, unknown = parser.parse_known_args(words)
            assert not unknown, example


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Train a policy" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"entity-encoder {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "command must be one of .* got 'trian'; did you mean 'train'"),
        ("train --lerning-rate 1", "unknown argument '--lerning-rate'; did you mean '--learning-r"),
    ],
)
def test_a_wrong_word_gives_the_nearest(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words.split())
    error = capsys.readouterr().err
    assert left.value.code == 2
    assert error.count("\n") == 1
    assert re.search(message, error)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train Entity/FlorIsLava-v0", f"got 'Entity/FlorIsLava-v0'; did you mean '{LAVA}'?"),
        ("envs FloorIsLava-v0", f"got 'FloorIsLava-v0'; did you mean '{LAVA}'?"),
        ("train --env-arg max_cherry=3", "got 'max_cherry'; did you mean 'max_cherries'?"),
        ("train --env-arg cherries", "--env-arg must have the form key=value, got 'cherries'"),
        ("train --env-arg max_cherries=1", "max_cherries must be a whole number from 2 to 1024"),
        ("train --total-steps 5", "total_steps must be at least one rollout"),
        ("train --gamma 1.5", "gamma must be in [0, 1], got 1.5"),
        ("train --eval-episodes -1", "--eval-episodes must not be negative, got -1"),
        ("train --film-every -1", "every must not be negative, got -1"),
        ("train --resume", "--resume must name a run directory"),
        ("train --resume nowhere", "got 'nowhere', which does not exist"),
        (f"train {LAVA} --resume nowhere", "environment must not be named with --resume"),
        ("train --device cuda:99", "device must be available"),
        ("eval", "run must be a run directory, got nothing"),
        ("eval nowhere", "checkpoint must be a run directory or a checkpoint, got 'nowhere'"),
        ("eval --policy random --episodes 0", "episodes must be at least 1, got 0"),
        ("eval --policy random --num-envs 0", "--num-envs must be at least 1, got 0"),
        ("eval --policy random --video x.avi", "video path must end in .gif or .mp4, got 'x.avi'"),
        ("plot nowhere", "run must be an existing directory, got 'nowhere'"),
        ("watch nowhere", "run must be an existing directory, got 'nowhere'"),
        ("export nowhere policy.txt", "file must end in .onnx or .pt2, got 'policy.txt'"),
        ("export nowhere policy.pt2", "got 'nowhere', which does not exist"),
        ("bench --iterations 0", "--iterations must be at least 1, got 0"),
        ("bench Entity/Bench-v0", "environment must be a registered id, got 'Entity/Bench-v0'"),
        ("play Entity/Ploy-v0", "environment must be a registered id, got 'Entity/Ploy-v0'"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith(f"entity-encoder {words.split()[0]}: error: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*checkpoint*"))


def test_the_traceback_of_bad_input_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTITY_ENCODER_TRACEBACK", "1")
    with pytest.raises(ValueError, match="run must be an existing directory"):
        main(["plot", "nowhere"])


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> int:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(COMMANDS["envs"], "run", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        main(["envs"])


def test_interrupting_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["envs"], "run", interrupt)
    assert main(["envs"]) == 130


def test_python_m_is_the_same_command_and_survives_a_closed_pipe() -> None:
    command = [sys.executable, "-m", "entity_encoder.agents", "envs", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as `| head -0` does
    _, error = process.communicate()
    assert process.returncode == 0
    assert error == b""


def test_a_module_in_the_current_folder_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its script lies elsewhere, so that Python alone would not look there."""
    code = "import gymnasium\ngymnasium.register('Mine-v5', entry_point='tests.cases.toys:Toy')\n"
    (tmp_path / "my_own_world.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(sys, "argv", ["entity-encoder", "envs", "my_own_world:Mine-v5"])
    try:
        assert main() == 0
    finally:
        gymnasium.registry.pop("Mine-v5", None)
    assert capsys.readouterr().out.startswith("my_own_world:Mine-v5")
