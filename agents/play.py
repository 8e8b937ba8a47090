"""Play a task by hand: the same frames that a policy's video shows, and the keyboard."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np
from PIL import Image

from entity_encoder.agents.keyboard import KEYS, Keyboard

__all__ = ["PlayWindow", "Screen", "play"]


class Screen(Protocol):
    """Where frames are shown and keys come from."""

    def show(self, frame: np.ndarray, text: str) -> None:
        """Show a frame (height, width, 3) and a line of text."""

    def key(self) -> str | None:
        """Wait for a key and return its name; None when the window was closed."""


def play(
    env: str,
    screen: Screen,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> list[float]:
    """Play until Escape or the window is closed.

    Args:
        env: Environment id.
        screen: Where it is shown.
        env_kwargs: Options of the environment.
        seed: Of the first episode; the next ones follow from it.

    Returns:
        The returns of the finished episodes.

    Raises:
        ValueError: When actions cannot be entered by keyboard.
    """
    import entity_encoder.envs  # noqa: F401  (registers the tasks)

    made = gymnasium.make(
        env, render_mode="rgb_array", disable_env_checker=True, **(env_kwargs or {})
    )
    try:
        return _Game(made, screen).run(seed)
    finally:
        made.close()


class _Game:
    """One sitting: episodes until the player has enough."""

    def __init__(self, env: gymnasium.Env[Any, Any], screen: Screen) -> None:
        task = env.get_wrapper_attr("task") if env.has_wrapper_attr("task") else env.unwrapped
        self.env = env
        self.screen = screen
        names = getattr(task, "action_names", ())
        self.keyboard = Keyboard(env.action_space, KEYS.get(type(task).__name__), names)
        self.returns: list[float] = []

    def run(self, seed: int | None) -> list[float]:
        observation, _ = self.env.reset(seed=seed)
        while True:
            total = self._episode(observation)
            if total is None:
                return self.returns
            self.returns.append(total)
            self._show(f"over: return {total:.3g}    any key: again   Esc: quit")
            if self.screen.key() in (None, "Escape"):
                return self.returns
            observation, _ = self.env.reset()

    def _episode(self, observation: Any) -> float | None:
        """Play one episode; return its sum of rewards, or None when the player left."""
        total, step = 0.0, 0
        while True:
            hint = self.keyboard.message or self.keyboard.prompt(observation)
            self._show(f"step {step}  return {total:.3g}    {hint}   Esc: quit")
            key = self.screen.key()
            if key in (None, "Escape"):
                return None
            action = self.keyboard.press(str(key), observation)
            if action is None:
                continue
            observation, reward, terminated, truncated, _ = self.env.step(action)
            total, step = total + float(reward), step + 1
            if terminated or truncated:
                return total

    def _show(self, text: str) -> None:
        frame: Any = self.env.render()
        self.screen.show(frame, text)


class PlayWindow:
    """A window made with Tk, which comes with Python.

    Args:
        title: Text in the title bar.

    Raises:
        OSError: There is no display, or no Tk; says which.
    """

    def __init__(self, title: str) -> None:
        try:
            import tkinter
        except ImportError as error:
            raise OSError(
                "play needs Tk, which this Python lacks; install python3-tk, or watch a policy "
                "with eval --video"
            ) from error
        try:
            self._root: Any = tkinter.Tk()
        except tkinter.TclError as error:
            raise OSError(
                f"play needs a display, and none can be opened ({error}); watch a policy with "
                "eval --video instead"
            ) from error
        self._root.title(title)
        self._picture: Any = tkinter.Label(self._root)
        self._text: Any = tkinter.Label(self._root, font=("TkDefaultFont", 12))
        self._picture.pack()
        self._text.pack(pady=6)
        self._pressed: Any = tkinter.StringVar(self._root)
        self._closed = False
        self._photo: Any = None
        self._keys: deque[str] = deque()
        self._root.bind("<Key>", lambda event: self._take(event.keysym))
        self._root.protocol("WM_DELETE_WINDOW", self.close)

    def show(self, frame: np.ndarray, text: str) -> None:
        """Show a frame (height, width, 3) and a line of text."""
        from PIL import ImageTk

        if self._closed:
            return
        self._photo = ImageTk.PhotoImage(Image.fromarray(frame), master=self._root)
        self._picture.configure(image=self._photo)
        self._text.configure(text=text)
        self._root.update()

    def key(self) -> str | None:
        """Wait for a key and return its name; None when the window was closed."""
        while not self._keys and not self._closed:
            self._root.wait_variable(self._pressed)
        return None if self._closed else self._keys.popleft()

    def close(self) -> None:
        """Close the window; whoever waits for a key gets None."""
        if not self._closed:
            self._closed = True
            self._pressed.set("")
            self._root.destroy()

    def _take(self, key: str) -> None:
        """Keep a key until somebody asks: a fast player is ahead of the frames."""
        self._keys.append(key)
        self._pressed.set(key)
