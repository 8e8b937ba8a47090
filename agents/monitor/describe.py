"""Write down what a run is made of: settings, versions, revision, machine."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["describe_run", "git_revision", "settings", "versions"]

PACKAGES = ("entity-encoder", "torch", "numpy", "gymnasium", "tensorboard")


def settings(config: Any) -> dict[str, Any]:
    """Read a dataclass or a mapping as ``{name: value}``; nested ones get dotted names."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    flat: dict[str, Any] = {}
    for name, value in dict(config).items():
        nested = dataclasses.is_dataclass(value) or (isinstance(value, Mapping) and value)
        inner = settings(value) if nested else {}
        flat.update({f"{name}.{k}": v for k, v in inner.items()} or {str(name): value})
    return flat


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def git_revision(folder: str | Path = ".") -> str:
    """Return the commit of the folder's repository, marked when files differ from it."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def describe_run(config: Any, *, folder: str | Path = ".") -> str:
    """Write a Markdown page with everything needed to repeat the run.

    Args:
        config: A dataclass or mapping of settings.
        folder: Where to ask git for the revision of the user's code.
    """
    where = {
        **versions(),
        "git revision": git_revision(folder),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    return f"{_table('setting', settings(config))}\n\n{_table('version', where)}"


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {title} | value |", "|---|---|"]
    lines += [f"| {name} | {str(value).replace('|', '/')} |" for name, value in rows.items()]
    return "\n".join(lines)
