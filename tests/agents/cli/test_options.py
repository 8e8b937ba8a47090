"""Options made from a dataclass, and what their values may look like."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import pytest

from entity_encoder.agents.cli.options import (
    Parser,
    add_config_options,
    config_overrides,
    key_values,
)
from entity_encoder.agents.config import PPOConfig


@dataclasses.dataclass
class Settings:
    steps: int = dataclasses.field(default=7, metadata={"help": "how many, at 100 %"})
    rate: float = 0.5
    name: str = dataclasses.field(default="a", metadata={"choices": ("a", "b")})
    fast: bool = True
    limit: float | None = None
    widths: tuple[int, ...] = ()


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="x")
    add_config_options(parser, Settings)
    return parser


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {}),
        ("--steps 1e6", {"steps": 1_000_000}),
        ("--steps 1_000", {"steps": 1000}),
        ("--rate 3e-4 --name b", {"rate": 3e-4, "name": "b"}),
        ("--no-fast", {"fast": False}),
        ("--fast", {"fast": True}),
        ("--limit 0.25", {"limit": 0.25}),
        ("--limit None", {"limit": None}),
        ("--widths 64,32", {"widths": (64, 32)}),
        ("--widths ,", {"widths": ()}),
    ],
)
def test_only_what_is_given_overrides(parser: Parser, words: str, expected: dict[str, Any]) -> None:
    assert config_overrides(parser.parse_args(words.split()), Settings) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--steps 1.5", "argument --steps: invalid whole number value: '1.5'"),
        ("--rate fast", "argument --rate: invalid number value: 'fast'"),
        ("--limit x", "argument --limit: invalid number value: 'x'"),
        ("--widths 3,a", "argument --widths: invalid widths value: '3,a'"),
        ("--name c", "argument --name: invalid choice: 'c'"),
    ],
)
def test_a_wrong_value_is_one_line_with_exit_code_2(
    parser: Parser, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as left:
        parser.parse_args(words.split())
    error = capsys.readouterr().err
    assert left.value.code == 2
    assert error.startswith(f"x: error: {message}")
    assert error.endswith("(see x --help)\n")
    assert error.count("\n") == 1


def test_help_shows_meaning_and_default_of_every_setting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = Parser(prog="x")
    add_config_options(parser, PPOConfig)
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for field in dataclasses.fields(PPOConfig):
        assert f"--{field.name.replace('_', '-')}" in text
        assert " ".join(field.metadata["help"].split()) in text
    assert "(default: 1000000)" in text
    assert "(default: true)" in text


def test_every_setting_survives_the_command_line() -> None:
    parser = Parser(prog="x")
    add_config_options(parser, PPOConfig)
    for name, value in PPOConfig().to_dict().items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words = [option if value else option.replace("--", "--no-", 1)]
        elif isinstance(value, list):
            words = [option, ",".join(map(str, value)) or ","]
        else:
            words = [option, str(value)]
        found = config_overrides(parser.parse_args(words), PPOConfig)
        assert PPOConfig.from_dict(found) == PPOConfig(), name


def test_an_unknown_option_gives_the_nearest(
    parser: Parser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.refuse_unknown(["--stepps", "3"])
    assert "unknown argument '--stepps'; did you mean '--steps'?" in capsys.readouterr().err


def test_abbreviations_are_not_guessed(parser: Parser) -> None:
    assert parser.parse_known_args(["--ste", "3"])[1] == ["--ste", "3"]


def test_key_values_read_literals_and_text() -> None:
    pairs = ["mines=20", "rate=.5", "sizes=[1, 2]", "on=true", "off=False", "name=red", "none=None"]
    assert key_values([*pairs, "empty=", "equation=a=b"]) == {
        "mines": 20,
        "rate": 0.5,
        "sizes": [1, 2],
        "on": True,
        "off": False,
        "name": "red",
        "none": None,
        "empty": "",
        "equation": "a=b",
    }
    assert key_values(None) == {}


@pytest.mark.parametrize("pair", ["mines", "=3", "two words=3", "3=4"])
def test_key_values_need_a_name_and_an_equals_sign(pair: str) -> None:
    with pytest.raises(ValueError, match=f"--env-arg must have the form key=value, got '{pair}'"):
        key_values([pair])


def test_types_that_no_reader_knows_stay_text() -> None:
    @dataclasses.dataclass
    class Other:
        path: str = "x"

    parser = argparse.ArgumentParser()
    add_config_options(parser, Other)
    assert parser.parse_args(["--path", "a b"]).path == "a b"
