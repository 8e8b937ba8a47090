"""What a person reads while training runs."""

from __future__ import annotations

import io

import pytest

from entity_encoder.agents.progress import Progress, format_seconds


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_log_lines_tell_steps_speeds_return_and_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(10_000, stream=stream, clock=clock) as progress:
        clock.now += 2.0
        progress.update(1_000, entities=3_500, episode_return=0.8251, score=0.91)
    # 1,000 steps in 2 s: 500 steps/s; 9,000 steps left: 18 s
    assert stream.getvalue() == (
        " 10%  1,000 / 10,000 steps  500 steps/s  1,750 entities/s  return 0.825  score 0.91"
        "  18 s left\n"
    )


def test_lines_come_at_an_interval_and_once_more_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(100, stream=stream, clock=clock, interval=10)
    for step in range(1, 26):
        clock.now += 1.0
        progress.update(step)
    progress.close()
    steps = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert steps == ["1", "11", "21", "25"]


def test_after_a_resume_the_speed_counts_new_steps_only(clock: Clock) -> None:
    progress = Progress(1_000, start_step=900, stream=io.StringIO(), clock=clock)
    assert progress.seconds_left is None
    clock.now += 5.0
    progress.update(950)
    assert progress.steps_per_second == 10.0
    assert progress.seconds_left == 5.0


def test_speed_follows_a_change(clock: Clock) -> None:
    progress = Progress(10**6, stream=io.StringIO(), clock=clock)
    for update in range(1, 101):
        clock.now += 1.0 if update <= 50 else 0.25
        progress.update(update * 10)
    assert progress.steps_per_second == 40.0


def test_the_last_return_stays_on_show(clock: Clock) -> None:
    progress = Progress(100, stream=io.StringIO(), clock=clock)
    progress.update(10, episode_return=2.0)
    progress.update(20)
    assert "return 2" in progress.line()


def test_a_terminal_shows_a_bar(clock: Clock) -> None:
    stream = Terminal()
    with Progress(200, stream=stream, clock=clock) as progress:
        clock.now += 1.0
        progress.update(50, entities=150, episode_return=-1.25)
        progress.note("saved")
    shown = stream.getvalue()
    assert " 25% |" in shown
    assert "50 / 200 steps  50 steps/s  150 entities/s  return -1.25  3 s left" in shown
    assert "saved\n" in shown


def test_a_bar_never_passes_its_end(clock: Clock) -> None:
    stream = Terminal()
    with Progress(100, stream=stream, clock=clock) as progress:
        progress.update(128)
    assert "100% |" in stream.getvalue()


def test_notes_stand_on_their_own_line_in_a_log(clock: Clock) -> None:
    stream = io.StringIO()
    Progress(10, stream=stream, clock=clock).note("checkpoint written")
    assert stream.getvalue() == "checkpoint written\n"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_disabled_progress_is_silent(stream: io.StringIO, clock: Clock) -> None:
    with Progress(10, stream=stream, enabled=False, clock=clock) as progress:
        progress.update(5, entities=1.0)
        progress.note("x")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
