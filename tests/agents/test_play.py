"""Playing by hand: the loop with scripted keys, and the window with a stand-in for Tk."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import ImageTk

from entity_encoder.agents.play import PlayWindow, play

LAVA = "Entity/FloorIsLava-v0"


class Script:
    """A screen that remembers what it shows and presses given keys, then closes."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.texts: list[str] = []
        self.frames: list[np.ndarray] = []

    def show(self, frame: np.ndarray, text: str) -> None:
        self.frames.append(frame)
        self.texts.append(text)

    def key(self) -> str | None:
        return self.keys.pop(0) if self.keys else None


def right_key(seed: int) -> str:
    """Return the digit that the scripted policy would press in the first episode."""
    import entity_encoder.envs  # noqa: F401

    env: Any = gymnasium.make(LAVA).unwrapped
    env.reset(seed=seed)
    return str(env.reference_action())


def test_an_episode_is_played_and_paid() -> None:
    key = right_key(seed=5)
    wrong = str((int(key) + 1) % 8)
    assert play(LAVA, Script(key), seed=5) == [1.0]
    assert play(LAVA, Script(wrong, "space", "Escape"), seed=5) == [0.0]


def test_keys_without_a_meaning_change_nothing_and_are_named() -> None:
    screen = Script("t", "Escape")
    assert play(LAVA, screen, seed=1) == []
    assert screen.texts[0].startswith("step 0  return 0    w: N  e: NE")
    assert "t means nothing here" in screen.texts[1]
    assert (screen.frames[0] == screen.frames[1]).all()


def test_the_next_episode_begins_after_any_key() -> None:
    screen = Script(right_key(seed=7), "space", "Escape")
    assert play(LAVA, screen, seed=7) == [1.0]
    assert screen.texts[1] == "over: return 1    any key: again   Esc: quit"
    assert screen.texts[2].startswith("step 0")


def test_options_reach_the_environment() -> None:
    screen = Script("Up", "Up")
    play("Entity/Minefield-v0", screen, env_kwargs={"max_episode_steps": 2}, seed=3)
    assert screen.texts[-1].startswith("over: return 0")


class TclError(Exception):
    """What Tk raises without a display."""


class FakeRoot:
    """The part of a Tk window that is used."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}
        self.keys: list[str] = []
        self.alive = True
        self.title = self.update = lambda *_: None

    def bind(self, event: str, call: Any) -> None:
        self.bound[event] = call

    def protocol(self, name: str, call: Any) -> None:
        self.bound[name] = call

    def wait_variable(self, _: Any) -> None:
        """Let the next scripted thing happen, as Tk's loop would."""
        key = self.keys.pop(0)
        if key == "close":
            self.bound["WM_DELETE_WINDOW"]()
        else:
            self.bound["<Key>"](types.SimpleNamespace(keysym=key))

    def destroy(self) -> None:
        self.alive = False


class FakeWidget:
    """A label, or a variable."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.shown: dict[str, Any] = {}
        self.value = ""

    def pack(self, **_: Any) -> None:
        """Take a place."""

    def configure(self, **values: Any) -> None:
        self.shown.update(values)

    def set(self, value: str) -> None:
        self.value = value


@pytest.fixture
def tk(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("tkinter")
    parts = {"Tk": FakeRoot, "Label": FakeWidget, "StringVar": FakeWidget, "TclError": TclError}
    for name, part in parts.items():
        setattr(module, name, part)
    monkeypatch.setitem(sys.modules, "tkinter", module)
    monkeypatch.setattr(ImageTk, "PhotoImage", lambda picture, master: picture)
    return module


def test_the_window_shows_frames_and_returns_keys_in_order(tk: types.ModuleType) -> None:
    window = PlayWindow("title")
    window.show(np.full((3, 5, 3), 9, np.uint8), "step 0")
    assert window._picture.shown["image"].size == (5, 3)
    assert window._text.shown["text"] == "step 0"
    window._root.keys = ["Left", "a"]
    assert [window.key(), window.key()] == ["Left", "a"]


def test_keys_pressed_while_nobody_waits_are_kept(tk: types.ModuleType) -> None:
    window = PlayWindow("title")
    window._take("Up")
    window._take("Down")
    assert [window.key(), window.key()] == ["Up", "Down"]


def test_a_closed_window_gives_no_key_and_takes_no_frame(tk: types.ModuleType) -> None:
    window = PlayWindow("title")
    window._root.keys = ["close"]
    assert window.key() is None
    assert window.key() is None
    assert not window._root.alive
    window.show(np.zeros((3, 5, 3), np.uint8), "late")
    assert window._text.shown == {}
    window.close()


def test_without_a_display_the_reason_and_another_way_are_named(
    tk: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise TclError("no display name")

    monkeypatch.setattr(tk, "Tk", fail)
    with pytest.raises(OSError, match=r"play needs a display, .*no display name.*eval --video"):
        PlayWindow("title")


def test_without_tk_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tkinter", None)
    with pytest.raises(OSError, match=r"play needs Tk, .*python3-tk"):
        PlayWindow("title")
