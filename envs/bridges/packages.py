"""Other people's packages: imported when a bridge is used, checked against known versions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, metadata
from types import ModuleType

__all__ = ["layout_error", "require", "version_of"]


def require(
    module: str, package: str, install: str = 'pip install "entity-encoder[envs]"'
) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: What to import, such as "highway_env".
        package: Name of its distribution, such as "highway-env".
        install: The command that brings it.

    Raises:
        ImportError: When it is missing, with that command.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this bridge needs {package}: {install} ({error})") from error


def version_of(package: str) -> str:
    """Return the installed version of a distribution, or "unknown"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def layout_error(package: str, known: Sequence[str], rule: str) -> ValueError:
    """Build the error for an observation that does not have the promised layout.

    Args:
        package: Distribution that made the observation.
        known: Versions that the bridge was tested with.
        rule: What must hold and what was got instead: "<name> must <rule>, got <value>".
    """
    return ValueError(
        f"{rule}; {package} {version_of(package)} is installed, "
        f"versions known to work: {', '.join(known)}"
    )
