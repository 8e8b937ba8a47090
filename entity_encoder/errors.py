"""Helpers for messages that name what was got and the nearest thing that would work."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["choose", "nearest", "require_at_least"]


def nearest(value: str, choices: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the nearest choice, or an empty string."""
    match = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    return f"; did you mean {match[0]!r}?" if match else ""


def choose(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` when it is one of `choices`.

    Raises:
        ValueError: Naming the argument, the choices and the nearest one.
    """
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}{nearest(value, choices)}")
    return value


def require_at_least(least: int, **sizes: int | None) -> None:
    """Check sizes given by keyword; None passes.

    Raises:
        ValueError: Naming the first size below `least`.
    """
    for name, size in sizes.items():
        if size is not None and size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
