"""What to say when a library is not installed."""

from __future__ import annotations

__all__ = ["missing_library"]


def missing_library(error: ImportError, library: str, *, extra: str) -> ImportError:
    """Return the error to raise: one that names the extra, or the given one if it is unrelated.

    Args:
        error: What importing the integration raised.
        library: Name under which the library is imported.
        extra: Name of the extra that installs it.
    """
    if (error.name or "").split(".")[0] != library:
        return error
    return ImportError(
        f"{library} is not installed, and entity_encoder.integrations.{extra} needs it: "
        f'pip install "entity-encoder[{extra}]"',
        name=error.name,
    )
