"""Frames to files."""

from __future__ import annotations

import builtins
import io
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from entity_encoder.agents.video import encode_gif, save_video, to_frame


def shades(*values: int, height: int = 11, width: int = 17) -> list[np.ndarray]:
    return [np.full((height, width, 3), value, dtype=np.uint8) for value in values]


def test_every_kind_of_picture_becomes_rgb_bytes() -> None:
    grey = np.array([[0.0, 0.5, 1.0], [2.0, -1.0, np.nan]])
    expected = np.array([[0, 128, 255], [255, 0, 0]], dtype=np.uint8)
    for picture in (grey, grey[..., None], torch.tensor(grey)):
        assert (to_frame(picture) == expected[..., None]).all()
    rgba = np.dstack([np.full((2, 3), v, dtype=np.uint8) for v in (1, 2, 3, 4)])
    assert to_frame(rgba).shape == (2, 3, 3)
    assert to_frame(rgba)[1, 2].tolist() == [1, 2, 3]
    assert to_frame(Image.new("RGB", (5, 3), (7, 8, 9)))[2, 4].tolist() == [7, 8, 9]
    assert to_frame(np.array([[True, False]]))[0, :, 0].tolist() == [255, 0]


@pytest.mark.parametrize("shape", [(3, 5, 2), (2, 3, 5, 3), (7,), (0, 5, 3)])
def test_what_is_no_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"frame must have shape \(height, width, 3\), got"):
        to_frame(np.zeros(shape))


def test_text_is_no_picture() -> None:
    with pytest.raises(ValueError, match=r"frame must hold bytes or floats in \[0, 1\], got <U1"):
        to_frame(np.full((2, 2), "x"))


def test_gif_holds_the_frames_in_order_at_the_asked_speed() -> None:
    film = Image.open(io.BytesIO(encode_gif(shades(0, 120, 240), fps=12.5)))
    frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]
    assert [int(frame[3, 5, 1]) for frame in frames] == [0, 120, 240]
    assert frames[0].shape == (11, 17, 3)
    assert film.info["duration"] == 80  # milliseconds: 1000 / 12.5
    assert film.info["loop"] == 0


def test_gif_colours_of_a_drawing_are_exact() -> None:
    picture = np.zeros((9, 9, 3), dtype=np.uint8)
    picture[2:4], picture[5:8] = (200, 30, 10), (20, 160, 90)
    film = Image.open(io.BytesIO(encode_gif([picture, picture[::-1]])))
    film.seek(1)
    assert (np.asarray(film.convert("RGB")) == picture[::-1]).all()


@pytest.mark.parametrize(("fps", "milliseconds"), [(30, 30), (1, 1000), (500, 20)])
def test_gif_speed_is_rounded_to_what_browsers_play(fps: float, milliseconds: int) -> None:
    assert (
        Image.open(io.BytesIO(encode_gif(shades(1, 99), fps=fps))).info["duration"] == milliseconds
    )


@pytest.mark.parametrize("fps", [0, -5, float("nan"), float("inf")])
def test_speed_must_be_positive(fps: float) -> None:
    with pytest.raises(ValueError, match="fps must be positive, got"):
        encode_gif(shades(1, 2), fps=fps)


def test_frames_must_exist_and_have_one_size(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frames must hold at least one picture, got none"):
        save_video(tmp_path / "a.gif", [])
    with pytest.raises(ValueError, match=r"frames must have one size, got \(5, 17, 3\) and \(11,"):
        encode_gif([*shades(1), *shades(1, height=5)])


def test_save_makes_the_folder_and_returns_the_path(tmp_path: Path) -> None:
    path = save_video(tmp_path / "new" / "a.GIF", shades(3, 200))
    assert path.read_bytes()[:6] == b"GIF89a"


def test_mp4_plays_back_with_odd_sizes(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="mp4 is an extra")
    path = save_video(tmp_path / "a.mp4", shades(10, 60, 110, 160, 210), fps=5)
    command = [ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"18x12" in done.stderr  # padded to even
    assert b"5 fps" in done.stderr
    middle = np.frombuffer(done.stdout, np.uint8).reshape(-1, 12, 18, 3)[:, 5, 7, 0]
    assert np.abs(middle - np.array([10.0, 60, 110, 160, 210])).max() < 6  # lossy


def test_mp4_tells_why_it_could_not_be_written(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="mp4 is an extra")
    (tmp_path / "a.mp4").mkdir()
    with pytest.raises(OSError, match=r"ffmpeg could not write .*a\.mp4: .+"):
        save_video(tmp_path / "a.mp4", shades(1, 2))


def test_mp4_without_its_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "imageio_ffmpeg":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pip install 'entity-encoder\[video\]'"):
        save_video(tmp_path / "a.mp4", shades(1, 2))


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"video path must end in \.gif or \.mp4, got .*a\.avi"):
        save_video(tmp_path / "a.avi", shades(1, 2))
