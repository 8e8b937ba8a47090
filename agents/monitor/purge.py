"""Take points that a resumed run will log again out of its earlier event files.

TensorBoard drops them by itself when it reads the mark that the writer leaves at a restart, but
its fast loader, the default, ignores that mark. Without them every reader shows one curve.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["purge_files"]

# A record: length (8 bytes), its checksum (4), that many bytes, their checksum (4).
HEADER, FOOTER = 12, 4


def purge_files(files: Iterable[Path], first_step: int) -> None:
    """Remove every logged value at ``first_step`` or later; each file is replaced in one step.

    Args:
        files: Event files that nobody writes to any more.
        first_step: The first step that will be logged again.
    """
    from tensorboard.compat.proto.event_pb2 import Event

    for file in files:
        content = file.read_bytes()
        kept = bytearray()
        for start, end in _records(content):
            event = Event.FromString(content[start + HEADER : end - FOOTER])
            if event.step < first_step or not event.HasField("summary"):
                kept += content[start:end]
        if len(kept) < len(content):
            temporary = file.with_name(f".purge-{os.getpid()}")
            temporary.write_bytes(kept)
            os.replace(temporary, file)


def _records(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each complete record begins and ends; a torn one at the end is left out."""
    start = 0
    while start + HEADER <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + HEADER + length + FOOTER
        if end > len(content):
            return
        yield start, end
        start = end
