"""Timing on shared machines: interleaved rounds, medians, and memory by the profiler."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping

import torch

__all__ = ["interleave", "keep_large_blocks", "peak_bytes"]

Work = Callable[[], object]


def interleave(work: Mapping[str, Work], *, rounds: int, budget: float = 60.0) -> dict[str, float]:
    """Run every contender in turn, `rounds` times, and return each one's median in seconds.

    Noise of the machine then falls on all alike. Rounds stop early after `budget` seconds, never
    before three.

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
        if done >= 3 and time.perf_counter() - begin > budget:
            break
        for name, run in work.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_bytes(run: Work) -> int:
    """Return the most memory that tensors of one run held at once, by the profiler's count."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        run()
    held = peak = 0
    events = [event for event in profiler.events() if event.name == "[memory]"]
    for event in sorted(events, key=lambda event: event.time_range.start):
        held += event.cpu_memory_usage
        peak = max(peak, held)
    return peak


def keep_large_blocks() -> None:
    """Make glibc keep large blocks instead of mapping each one anew.

    By default every block above 32 MiB costs as many page faults as it has pages, which favours
    code that avoids such blocks; with this call, for the rest of the process, nobody pays them.
    """
    libc = ctypes.CDLL(None)
    mmap_max, trim_threshold = -4, -1
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, 2**31 - 1)
