"""What to compute on: the device, and how many CPU threads, chosen on purpose."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from entity_encoder.agents.config import PPOConfig

__all__ = [
    "available_cores",
    "check_accelerator",
    "choose_device",
    "choose_threads",
    "computing",
    "using_threads",
]

MAX_THREADS = 8  # these networks are small: more threads wait for each other


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is CUDA where there is one.

    Raises:
        ValueError: When it is not available here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be available, got {name!r} without CUDA; use device='cpu'")
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device


def available_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many cores this process may use: its affinity, within a container's quota.

    Args:
        quota: The file in which Linux states the quota.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with contextlib.suppress(OSError, ValueError):
        limit, period = quota.read_text().split()
        cores = min(cores or 1, max(1, int(limit) // int(period)))
    return max(1, cores or 1)


def choose_threads(
    requested: int, *, device: torch.device, workers: int = 0, ranks: int = 1
) -> tuple[int, str]:
    """Choose how many threads share the chunks of a minibatch.

    Torch itself gets one thread for each of them: its operations here are too small to be shared.

    Args:
        requested: 0 to choose, otherwise the answer.
        device: Where the policy learns.
        workers: Processes that step environments.
        ranks: Processes that learn, on this machine.

    Returns:
        The number and the reason in words.
    """
    if requested:
        return requested, "asked for"
    cores = available_cores()
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads(), "OMP_NUM_THREADS is set"
    if device.type != "cpu":
        return 1, f"the policy learns on {device.type}"
    if ranks > 1:
        return max(1, cores // ranks), f"{ranks} processes share {cores} cores"
    if workers >= cores:
        return 1, f"{workers} workers share {cores} cores"
    return min(cores, MAX_THREADS), f"{cores} cores"


def check_accelerator(config: PPOConfig, device: torch.device) -> None:
    """Refuse what only an accelerator gains from.

    Raises:
        ValueError: Naming the setting and the reason.
    """
    reasons = {
        "bfloat16": "it is several times slower on a CPU",
        "compile": "on a CPU it takes minutes and gains nothing",
        "cuda_graphs": "only CUDA has graphs",
    }
    for name, reason in reasons.items():
        if getattr(config, name) and device.type != "cuda":
            raise ValueError(f"{name} must be off on {device.type}, got True: {reason}")
    if config.cuda_graphs and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("cuda_graphs must be off with several processes, got True")


def computing(
    device: torch.device, *, bfloat16: bool
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Return what makes the context in which a policy computes.

    Args:
        device: Where.
        bfloat16: Whether matrix products are rounded to bfloat16.
    """
    if not bfloat16:
        return contextlib.nullcontext
    # Without the cache of cast weights: a captured graph would go on reading old ones.
    return lambda: torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


@contextlib.contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the block, and as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
