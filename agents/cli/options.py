"""Command-line options that are made from a dataclass, and readers for their values."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from entity_encoder.errors import nearest

__all__ = ["Parser", "add_config_options", "config_overrides", "key_values", "whole_number"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the nearest option that exists."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look, and exit with 2."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")

    def refuse_unknown(self, unknown: Sequence[str]) -> None:
        """Refuse what no option took."""
        if unknown:
            options = list(self._option_string_actions)
            self.error(f"unknown argument {unknown[0]!r}{nearest(unknown[0], options)}")


def add_config_options(parser: argparse._ActionsContainer, config: Any) -> None:
    """Add one option for each field of a dataclass, with the help text in its metadata.

    Options that are not given leave no attribute, so that presets and checkpoints keep theirs.

    Args:
        parser: The parser or group that gets them.
        config: The dataclass.
    """
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        option = "--" + field.name.replace("_", "-")
        text = field.metadata.get("help", "").replace("%", "%%")
        keywords: dict[str, Any] = {"help": f"{text} (default: {_shown(field.default)})"}
        if hints[field.name] is bool:
            keywords["action"] = argparse.BooleanOptionalAction
        else:
            keywords["type"] = _reader(hints[field.name])
            keywords["metavar"] = field.name.rpartition("_")[2].upper()
            if field.metadata.get("choices"):
                keywords["choices"] = tuple(field.metadata["choices"])
                del keywords["metavar"]
        parser.add_argument(option, dest=field.name, default=argparse.SUPPRESS, **keywords)


def config_overrides(arguments: argparse.Namespace, config: Any) -> dict[str, Any]:
    """Return the fields of the dataclass that were given on the command line."""
    given = vars(arguments)
    names = [field.name for field in dataclasses.fields(config)]
    return {name: given[name] for name in names if name in given}


def key_values(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Read ``key=value`` options; values are Python literals, or else text.

    Raises:
        ValueError: There is no ``=``, or nothing before it.
    """
    found = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--env-arg must have the form key=value, got {pair!r}")
        try:
            found[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[key] = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    return found


def _reader(hint: Any) -> Callable[[str], Any]:
    """Return the function that reads a value of this type."""
    if isinstance(hint, types.UnionType):
        (inner,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
        read = _reader(inner)
        return _named(lambda text: None if text.lower() == "none" else read(text), read.__name__)
    if typing.get_origin(hint) is tuple:
        return _named(
            lambda text: tuple(whole_number(part) for part in text.split(",") if part), "widths"
        )
    return {int: _named(whole_number, "whole number"), float: _named(float, "number")}.get(
        hint, str
    )


def whole_number(text: str) -> int:
    """Read 1000000, 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if value != int(value):
            raise
        return int(value)


def _named(read: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    """Name a reader, for argparse says "invalid <name> value"."""

    def reader(text: str) -> Any:
        return read(text)

    reader.__name__ = name
    return reader


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or "none"
    return (
        "none"
        if default is None
        else str(default).lower()
        if default in (True, False)
        else f"{default}"
    )
