"""Drawing with Pillow: a canvas in world coordinates, and a window that shows frames."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

__all__ = ["PALETTE", "Canvas", "Viewer", "Window", "blend", "tile"]

Point = tuple[float, float]

#: Colours that stay distinct for colour-blind people (Okabe and Ito, 2008), then neutrals.
PALETTE = {
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "red": "#D55E00",
    "pink": "#CC79A7",
    "ink": "#22262B",
    "grey": "#8A929B",
    "light": "#DFE3E8",
    "paper": "#FBFBF8",
    "white": "#FFFFFF",
}

_SUPERSAMPLING = 3  # drawn this many times larger, then averaged: Pillow does not smooth edges


def _colour(name: str) -> str:
    return PALETTE.get(name, name)


def blend(low: str, high: str, share: float) -> str:
    """Mix two colours: `low` at share 0, `high` at share 1."""
    share = min(max(share, 0.0), 1.0)
    pairs = zip(ImageColor.getrgb(_colour(low)), ImageColor.getrgb(_colour(high)), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02X}" for a, b in pairs)


class Canvas:
    """A picture with a world on it: x to the right, y upwards.

    Args:
        world: (left, bottom, right, top) in world units; drawn as large as fits, in the middle.
        size: (width, height) of the frame in pixels.
        margin: Pixels kept free at each side.
        header: Pixels kept free at the top, for `title`.
        background: Colour, a name of `PALETTE` or "#RRGGBB".

    Attributes:
        places: Pixel (x from the left, y from the top) of each entity that was marked, by group
            and slot.
    """

    def __init__(
        self,
        world: tuple[float, float, float, float],
        *,
        size: tuple[int, int] = (480, 520),
        margin: int = 16,
        header: int = 40,
        background: str = "paper",
    ) -> None:
        self.size = size
        left, bottom, right, top = world
        width, height = size[0] - 2 * margin, size[1] - 2 * margin - header
        scale = min(width / (right - left), height / (top - bottom))
        self._scale = scale * _SUPERSAMPLING
        self._left = left - (size[0] / scale - (right - left)) / 2
        self._top = top + margin / scale + header / scale
        self._top += (height / scale - (top - bottom)) / 2
        full = (size[0] * _SUPERSAMPLING, size[1] * _SUPERSAMPLING)
        self.places: dict[tuple[str, int], Point] = {}
        self._image = Image.new("RGB", full, _colour(background))
        self._draw = ImageDraw.Draw(self._image)

    def _pixel(self, point: Point) -> Point:
        return (point[0] - self._left) * self._scale, (self._top - point[1]) * self._scale

    def _width(self, pixels: float) -> int:
        return max(1, round(pixels * _SUPERSAMPLING))

    def pixels(self, length: float) -> float:
        """Return how many pixels of the frame a length in world units takes."""
        return length * self._scale / _SUPERSAMPLING

    def circle(
        self,
        centre: Point,
        radius: float,
        fill: str | None = None,
        outline: str | None = None,
        width: float = 1.5,
    ) -> None:
        """Draw a circle; radius in world units, width of the outline in pixels."""
        (x, y), r = self._pixel(centre), radius * self._scale
        self._draw.ellipse(
            (x - r, y - r, x + r, y + r),
            fill=None if fill is None else _colour(fill),
            outline=None if outline is None else _colour(outline),
            width=self._width(width),
        )

    def rectangle(
        self,
        low: Point,
        high: Point,
        fill: str | None = None,
        outline: str | None = None,
        width: float = 1.5,
        radius: float = 0.0,
    ) -> None:
        """Draw a rectangle between its lower left and upper right corner; radius of its corners."""
        (left, bottom), (right, top) = self._pixel(low), self._pixel(high)
        self._draw.rounded_rectangle(
            (left, top, right, bottom),
            radius=radius * self._scale,
            fill=None if fill is None else _colour(fill),
            outline=None if outline is None else _colour(outline),
            width=self._width(width),
        )

    def polygon(self, points: Sequence[Point], fill: str, outline: str | None = None) -> None:
        """Draw a filled polygon."""
        self._draw.polygon(
            [self._pixel(point) for point in points],
            fill=_colour(fill),
            outline=None if outline is None else _colour(outline),
            width=self._width(1.5),
        )

    def line(self, points: Sequence[Point], colour: str, width: float = 1.5) -> None:
        """Draw a line through points; width in pixels."""
        pixels = [self._pixel(point) for point in points]
        self._draw.line(pixels, fill=_colour(colour), width=self._width(width), joint="curve")

    def arrow(self, start: Point, end: Point, colour: str, width: float = 2.0) -> None:
        """Draw a line with a head of constant size at its end."""
        self.line((start, end), colour, width)
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        reach = (4.0 + 2.5 * width) * _SUPERSAMPLING / self._scale
        head = [
            (end[0] + reach * math.cos(angle + turn), end[1] + reach * math.sin(angle + turn))
            for turn in (math.pi * 0.84, -math.pi * 0.84)
        ]
        self.polygon((end, *head), colour)

    def text(
        self, point: Point, text: str, colour: str = "ink", size: float = 14, anchor: str = "mm"
    ) -> None:
        """Write text; size in pixels, anchor as in Pillow ("mm" is centred)."""
        font = ImageFont.load_default(size * _SUPERSAMPLING)
        self._draw.text(self._pixel(point), text, fill=_colour(colour), font=font, anchor=anchor)

    def title(self, left: str, right: str = "") -> None:
        """Write one line above the world, for instance the task's aim and the clock."""
        width = self.size[0] * _SUPERSAMPLING
        y, pad = 22 * _SUPERSAMPLING, 16 * _SUPERSAMPLING
        font = ImageFont.load_default(15 * _SUPERSAMPLING)
        self._draw.text((pad, y), left, fill=PALETTE["ink"], font=font, anchor="lm")
        self._draw.text((width - pad, y), right, fill=PALETTE["grey"], font=font, anchor="rm")

    def mark(self, group: str, slot: int, point: Point) -> None:
        """Say where an entity of the observation is drawn, so that lines can be drawn to it."""
        x, y = self._pixel(point)
        self.places[group, slot] = (x / _SUPERSAMPLING, y / _SUPERSAMPLING)

    def image(self) -> Image.Image:
        """Return the finished frame, RGB; its `info["places"]` holds what was marked."""
        image = self._image.reduce(_SUPERSAMPLING)
        image.info["places"] = dict(self.places)
        return image


class Window:
    """A window that shows frames side by side, at most `fps` per second.

    Args:
        title: Text in the title bar.
        fps: Frames per second.

    Raises:
        RuntimeError: When no window can be opened; says why.
    """

    def __init__(self, title: str, fps: int) -> None:
        try:
            import tkinter
        except ImportError as e:
            raise RuntimeError(
                f"render_mode='human' needs Tk, which this Python lacks ({e}); install python3-tk "
                "or use render_mode='rgb_array'"
            ) from e
        try:
            self._root: Any = tkinter.Tk()
        except tkinter.TclError as e:
            raise RuntimeError(
                f"render_mode='human' needs a display, but none can be opened ({e}); "
                "use render_mode='rgb_array'"
            ) from e
        self._root.title(title)
        self._label: Any = tkinter.Label(self._root)
        self._label.pack()
        self._period = 1.0 / fps
        self._last = 0.0
        self._photo: Any = None

    def show(self, frames: Sequence[Image.Image]) -> None:
        """Show frames in one grid and wait until they have been visible long enough."""
        from PIL import ImageTk

        time.sleep(max(0.0, self._last + self._period - time.monotonic()))
        self._last = time.monotonic()
        self._photo = ImageTk.PhotoImage(tile(frames), master=self._root)
        self._label.configure(image=self._photo)
        self._root.update()

    def close(self) -> None:
        """Close the window."""
        self._root.destroy()


class Viewer:
    """Deliver frames as a render mode wants them; the window is opened with the first one.

    Args:
        render_mode: "rgb_array", "human" or None.
        title: Text in the title bar.
        fps: Frames per second.
    """

    def __init__(self, render_mode: str | None, title: str, fps: int) -> None:
        self._mode = render_mode
        self._title, self._fps = title, fps
        self._window: Window | None = None

    def show(self, draw: Callable[[int], Image.Image], num_envs: int) -> None:
        """In "human" mode show the first nine environments; otherwise do nothing."""
        if self._mode == "human":
            if self._window is None:
                self._window = Window(self._title, self._fps)
            self._window.show([draw(env) for env in range(min(num_envs, 9))])

    def arrays(
        self, draw: Callable[[int], Image.Image], num_envs: int
    ) -> tuple[np.ndarray, ...] | None:
        """Return all frames as uint8 arrays, (height, width, 3); in "human" mode only show them.

        Raises:
            ValueError: Without a render mode.
        """
        if self._mode is None:
            raise ValueError(
                f"render needs a render_mode, got None; make {self._title} with "
                'render_mode="rgb_array" or "human"'
            )
        if self._mode == "human":
            self.show(draw, num_envs)
            return None
        return tuple(np.array(draw(env)) for env in range(num_envs))

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the window behind when pickled."""
        return {**self.__dict__, "_window": None}


def tile(frames: Sequence[Image.Image]) -> Image.Image:
    """Put frames of one size into a grid as square as possible."""
    columns = math.ceil(math.sqrt(len(frames)))
    rows = math.ceil(len(frames) / columns)
    width, height = frames[0].size
    grid = Image.new("RGB", (columns * width, rows * height), PALETTE["light"])
    for index, frame in enumerate(frames):
        grid.paste(frame, (index % columns * width, index // columns * height))
    return grid
