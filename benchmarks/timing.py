"""Timing on shared machines: interleaved rounds, medians, and memory by the profiler."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["interleave", "keep_large_blocks", "peak_bytes"]

Work = Callable[[], object]


def interleave(work: Mapping[str, Work], *, rounds: int, budget: float = 60.0) -> dict[str, float]:
    """Run every contender in turn, `rounds` times, and return each one's median in seconds.

    Noise of the machine then falls on all alike. Rounds stop early after `budget` seconds, not
    before three, or before one where three would take three times as long.

    Args:
        work: One callable per contender; each has run once before to warm up.
        rounds: Number of rounds.
        budget: Seconds after which no further round begins.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for run in work.values():
        run()
    begin = time.perf_counter()
    for done in range(rounds):
        spent = time.perf_counter() - begin
        if spent > 3 * budget or (done >= 3 and spent > budget):
            break
        for name, run in work.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_bytes(run: Work) -> int:
    """Return by how much one run raised the process's resident memory at its highest.

    Linux only, elsewhere 0. What the allocator already holds does not count again.
    """
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        return 0
    gc.collect()
    before = _kibibytes(status, "VmRSS")
    reset.write_text("5")  # the highest value so far is forgotten
    run()
    return max(0, _kibibytes(status, "VmHWM") - before) * 1024


def _kibibytes(status: Path, name: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


def keep_large_blocks() -> None:
    """Make glibc keep large blocks instead of mapping each one anew.

    By default every block above 32 MiB costs as many page faults as it has pages, which favours
    code that avoids such blocks; with this call, for the rest of the process, nobody pays them.
    """
    libc = ctypes.CDLL(None)
    mmap_max, trim_threshold = -4, -1
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, 2**31 - 1)
