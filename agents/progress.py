"""Show how far a training is: a bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

__all__ = ["Progress", "format_seconds"]

WINDOW = 30  # updates that speeds are averaged over: recent enough to follow a change


class Progress:
    """Report steps, speeds, return and the time left.

    Args:
        total_steps: Where training ends.
        start_step: Where it begins; above 0 after a resume.
        stream: Where to write; standard error by default. A bar is drawn where it is a terminal,
            plain lines are written otherwise.
        interval: Seconds between two lines.
        enabled: False writes nothing, as on every process but the first.
        clock: Seconds that only ever rise.
    """

    def __init__(
        self,
        total_steps: int,
        start_step: int = 0,
        *,
        stream: TextIO | None = None,
        interval: float = 10.0,
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_steps = total_steps
        self.step = start_step
        self._stream = sys.stderr if stream is None else stream
        self._interval = interval
        self._enabled = enabled
        self._clock = clock
        self._entities = 0.0
        self._result = ""
        self._points: deque[tuple[float, int, float]] = deque(maxlen=WINDOW + 1)
        self._points.append((clock(), start_step, 0.0))
        self._next_line = clock()
        self._written = ""
        self._bar: Any = None
        if enabled and self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total_steps,
                initial=start_step,
                file=self._stream,
                bar_format="{percentage:3.0f}% |{bar:20}| {desc}",
                dynamic_ncols=True,
            )

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second over the last updates; 0 before the first."""
        return self._rate(1)

    @property
    def entities_per_second(self) -> float:
        """Present entities per second over the last updates; 0 before the first."""
        return self._rate(2)

    @property
    def seconds_left(self) -> float | None:
        """Time until the end at the present speed; None while that is unknown."""
        speed = self.steps_per_second
        return max(0, self.total_steps - self.step) / speed if speed > 0 else None

    def update(
        self,
        step: int,
        *,
        entities: float = 0.0,
        episode_return: float | None = None,
        score: float | None = None,
    ) -> None:
        """Report that training has come to ``step``.

        Args:
            step: Environment steps learned from so far.
            entities: Present entities encoded since the last call.
            episode_return: Mean return of recent episodes; None keeps the last one on show.
            score: Their mean score, where the task has one; None keeps the last one on show.
        """
        self.step = step
        self._entities += entities
        self._points.append((self._clock(), step, self._entities))
        if episode_return is not None:
            self._result = f"return {episode_return:.3g}"
            self._result += "" if score is None else f"  score {score:.3g}"
        if self._bar is not None:
            self._bar.n = min(step, self.total_steps)
            self._bar.set_description_str(self.line(), refresh=True)
        elif self._enabled and self._clock() >= self._next_line:
            self._next_line = self._clock() + self._interval
            self._print_line()

    def line(self) -> str:
        """Write the state in one line."""
        parts = [f"{self.step:,} / {self.total_steps:,} steps"]
        if self.steps_per_second:
            parts.append(f"{self.steps_per_second:,.0f} steps/s")
        if self.entities_per_second:
            parts.append(f"{self.entities_per_second:,.0f} entities/s")
        parts += [self._result] if self._result else []
        if self.seconds_left is not None:
            parts.append(f"{format_seconds(self.seconds_left)} left")
        return "  ".join(parts)

    def note(self, message: str) -> None:
        """Write a line of its own, above the bar where there is one."""
        if self._bar is not None:
            self._bar.write(message, file=self._stream)
        elif self._enabled:
            print(message, file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the last state on show."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        elif self._enabled and self.line() != self._written:
            self._print_line()
        self._enabled = False

    def __enter__(self) -> Progress:
        """Use the report in a with block, which closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, so that an error message begins on a line of its own."""
        self.close()

    def _print_line(self) -> None:
        self._written = self.line()
        share = min(1.0, self.step / self.total_steps) if self.total_steps else 1.0
        print(f"{share:4.0%}  {self._written}", file=self._stream, flush=True)

    def _rate(self, column: int) -> float:
        first, last = self._points[0], self._points[-1]
        seconds = last[0] - first[0]
        return (last[column] - first[column]) / seconds if seconds > 0 else 0.0


def format_seconds(seconds: float) -> str:
    """Write a duration as a person would say it: 42 s, 3 min 05 s, 2 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
