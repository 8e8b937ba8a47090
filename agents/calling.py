"""How the command line is called here, for lines that people shall copy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

__all__ = ["command"]


def command() -> str:
    """Return how this command line is called here: by its name, or by the interpreter's path."""
    here = Path(sys.executable).parent
    found = shutil.which("entity-encoder")
    if found is not None and Path(found).parent == here:
        return "entity-encoder"
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    script = python.parent / "entity-encoder"
    return str(script) if script.exists() else f"{python} -m entity_encoder.agents"
