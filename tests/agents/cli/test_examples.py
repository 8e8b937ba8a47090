"""What `--help` shows as examples can be typed."""

from __future__ import annotations

import re
import shlex

import pytest

from entity_encoder.agents.cli.main import COMMANDS, EXAMPLES, build_parsers
from entity_encoder.agents.cli.options import key_values
from entity_encoder.agents.cli.tasks import describe_task


def commands() -> list[list[str]]:
    texts = [EXAMPLES, *(module.EXAMPLES for module in COMMANDS.values())]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    # What stands behind several spaces explains the command.
    shown = [re.split(r"\s{3,}", line)[0] for line in lines if line.startswith("entity-encoder ")]
    return [shlex.split(line)[1:] for line in shown]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_an_example_parses_and_its_options_exist(words: list[str]) -> None:
    parser, _ = build_parsers()
    options, unknown = parser.parse_known_args(words)
    assert not unknown
    if words[0] == "train" and options.env and not options.env.startswith("Bridge/"):
        describe_task(options.env, key_values(options.env_arg))


def test_there_are_examples_of_every_command() -> None:
    assert {words[0] for words in commands()} == set(COMMANDS)
