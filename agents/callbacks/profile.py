"""Say where the time goes inside an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity

if TYPE_CHECKING:
    from entity_encoder.agents.ppo import PPO

__all__ = ["Profile"]


class Profile:
    """Profile some iterations with torch's profiler.

    The operations that took longest stand in TensorBoard's text tab under `profile`; the whole
    trace is `trace.json.gz` in the run directory, for https://ui.perfetto.dev or chrome://tracing.

    Args:
        iterations: How many are profiled.
        after: How many go by before, so that memory and caches have settled.

    Raises:
        ValueError: Nothing would be profiled.
    """

    def __init__(self, iterations: int = 1, *, after: int = 2) -> None:
        if iterations < 1 or after < 1:
            raise ValueError(
                f"iterations and after must be at least 1, got {iterations} and {after}"
            )
        self.iterations = iterations
        self.after = after
        self._seen = 0
        self._profiler: Any = None

    def __call__(self, agent: PPO, metrics: Mapping[str, float]) -> None:
        """Begin or end at the border between two iterations."""
        self._seen += 1
        if self._seen == self.after and agent.monitor.enabled:
            activities = [ProfilerActivity.CPU]
            activities += [ProfilerActivity.CUDA] if agent.device.type == "cuda" else []
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.start()
        elif self._seen == self.after + self.iterations:
            self._write(agent)

    def finish(self, agent: PPO) -> None:
        """Write what there is when training was shorter than that."""
        self._write(agent)

    def _write(self, agent: PPO) -> None:
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        by = "self_cuda_time_total" if agent.device.type == "cuda" else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=by, row_limit=25, max_name_column_width=40)
        indented = "\n".join(f"    {line}" for line in table.splitlines())
        agent.monitor.text("profile", indented, agent.steps)
        profiler.export_chrome_trace(str(agent.monitor.run_dir / "trace.json.gz"))
