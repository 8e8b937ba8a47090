import pickle
from typing import Any

import numpy as np
import pytest
from PIL import Image

from entity_encoder.envs import rendering
from entity_encoder.envs.rendering import Canvas, Viewer, Window, blend, tile


def pixel(canvas: Canvas, x: int, y: int) -> tuple[int, ...]:
    value = canvas.image().getpixel((x, y))
    assert isinstance(value, tuple)
    return value


def test_world_coordinates_have_y_upwards_and_keep_their_proportions() -> None:
    canvas = Canvas((0, 0, 10, 10), size=(100, 100), margin=0, header=0, background="white")
    canvas.rectangle((0, 9), (1, 10), fill="#FF0000")  # the upper left corner
    canvas.circle((8, 2), 1, fill="#0000FF")
    assert pixel(canvas, 4, 4) == (255, 0, 0)
    assert pixel(canvas, 80, 80) == (0, 0, 255)
    assert pixel(canvas, 80, 20) == (255, 255, 255)
    assert canvas.pixels(2.5) == 25


def test_world_is_centred_below_the_header() -> None:
    canvas = Canvas((-1, -1, 1, 1), size=(200, 140), margin=0, header=40, background="white")
    canvas.circle((0, 0), 0.5, fill="#00FF00")  # radius 25 pixels around (100, 90)
    assert pixel(canvas, 100, 90) == (0, 255, 0)
    assert pixel(canvas, 100, 60) == (255, 255, 255)
    assert pixel(canvas, 100, 120) == (255, 255, 255)
    assert pixel(canvas, 120, 90) == (0, 255, 0)


def test_edges_are_smooth() -> None:
    canvas = Canvas((0, 0, 1, 1), size=(60, 60), margin=0, header=0, background="white")
    canvas.circle((0.5, 0.5), 0.3, fill="#000000")
    shades = np.unique(np.asarray(canvas.image()))
    assert len(shades) == 10  # black covers 0 to 9 of the 3 x 3 points of a pixel


def test_lines_arrows_polygons_and_text_leave_a_mark() -> None:
    blank = np.asarray(Canvas((0, 0, 4, 4), size=(80, 80)).image())
    for draw in (
        lambda c: c.line(((0, 0), (4, 4)), "blue"),
        lambda c: c.arrow((0, 0), (3, 1), "red"),
        lambda c: c.polygon(((0, 0), (1, 0), (0, 1)), "green", "ink"),
        lambda c: c.text((2, 2), "7"),
        lambda c: c.title("left", "right"),
        lambda c: c.rectangle((0, 0), (1, 1), outline="ink", radius=0.2),
    ):
        canvas = Canvas((0, 0, 4, 4), size=(80, 80))
        draw(canvas)
        assert not np.array_equal(np.asarray(canvas.image()), blank)


def test_colours_blend() -> None:
    assert blend("#000000", "#FFFFFF", 0.5) == "#808080"
    assert blend("blue", "#FFFFFF", -3.0) == "#0072B2"
    assert blend("#000000", "#102030", 9.0) == "#102030"


def test_frames_are_tiled_row_by_row() -> None:
    frames = [Image.new("RGB", (2, 3), (shade, 0, 0)) for shade in (10, 20, 30)]
    grid = np.asarray(tile(frames))
    assert grid.shape == (6, 4, 3)
    assert grid[::3, ::2, 0].tolist() == [[10, 20], [30, 0xDF]]


class FakeWindow:
    """Stands in for a window where there is no display."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.shown: list[int] = []
        self.closed = False

    def show(self, frames: list[Image.Image]) -> None:
        self.shown.append(len(frames))

    def close(self) -> None:
        self.closed = True


def frame(env: int) -> Image.Image:
    return Image.new("RGB", (2, 2), (env, 0, 0))


def test_window_is_opened_once_and_shows_nine_environments_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendering, "Window", FakeWindow)
    viewer = Viewer("human", "Task", 8)
    viewer.show(frame, 20)
    window: Any = viewer._window
    assert viewer.arrays(frame, 4) is None
    assert window.shown == [9, 4]
    assert window.arguments == ("Task", 8)
    assert pickle.loads(pickle.dumps(viewer))._window is None
    viewer.close()
    assert window.closed
    viewer.close()


def test_arrays_are_given_in_rgb_mode_and_nothing_is_shown() -> None:
    viewer = Viewer("rgb_array", "Task", 8)
    viewer.show(frame, 3)
    arrays = viewer.arrays(frame, 3)
    assert arrays is not None
    assert [int(array[0, 0, 0]) for array in arrays] == [0, 1, 2]
    assert arrays[0].dtype == np.uint8


def test_missing_display_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import tkinter

    def fail() -> None:
        raise tkinter.TclError("no display name")

    monkeypatch.setattr(tkinter, "Tk", fail)
    with pytest.raises(RuntimeError, match=r"needs a display, .*no display name.*'rgb_array'"):
        Window("Task", 8)


def test_missing_tk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tkinter", None)
    with pytest.raises(RuntimeError, match=r"needs Tk, which this Python lacks .*python3-tk"):
        Window("Task", 8)


def test_window_shows_the_frames_as_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    import tkinter

    from PIL import ImageTk

    class Widget:
        calls: list[str] = []  # noqa: RUF012

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: Widget.calls.append(name)

    photos: list[Image.Image] = []
    monkeypatch.setattr(tkinter, "Tk", Widget)
    monkeypatch.setattr(tkinter, "Label", Widget)
    monkeypatch.setattr(ImageTk, "PhotoImage", lambda image, master: photos.append(image))
    window = Window("Task", 1000)
    window.show([frame(3), frame(4)])
    window.show([frame(5)])
    window.close()
    assert [photo.size for photo in photos] == [(4, 2), (2, 2)]
    assert Widget.calls == [
        "title",
        "pack",
        "configure",
        "update",
        "configure",
        "update",
        "destroy",
    ]


def test_marked_entities_are_found_in_the_frame() -> None:
    canvas = Canvas((0, 0, 10, 10), size=(100, 100), margin=0, header=0, background="white")
    canvas.circle((8, 2), 1, fill="#0000FF")
    canvas.mark("ball", 3, (8, 2))
    picture = canvas.image()
    assert picture.info["places"] == {("ball", 3): (80.0, 80.0)}
    assert picture.getpixel((80, 80)) == (0, 0, 255)
