"""Turn frames into a file: GIF with Pillow alone, MP4 where imageio-ffmpeg is installed."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["check_video_path", "encode_gif", "save_video", "to_frame"]

VIDEO_SUFFIXES = (".gif", ".mp4")


def to_frame(frame: Any) -> np.ndarray:
    """Read one picture as RGB bytes.

    Args:
        frame: A PIL image, or an array or tensor (H, W), (H, W, 1), (H, W, 3) or (H, W, 4):
            bytes, or floats in [0, 1]. Transparency is dropped.

    Returns:
        A uint8 array (H, W, 3).

    Raises:
        ValueError: The shape or the type is not a picture's.
    """
    array = np.asarray(frame)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[-1] not in (1, 3, 4) or 0 in array.shape:
        raise ValueError(
            f"frame must have shape (height, width, 3), got {array.shape}; "
            "put the channels last and give one frame at a time"
        )
    if array.dtype == bool or np.issubdtype(array.dtype, np.floating):
        array = np.clip(np.nan_to_num(array.astype(np.float32)), 0.0, 1.0) * 255.0 + 0.5
    elif not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"frame must hold bytes or floats in [0, 1], got {array.dtype}")
    array = np.clip(array, 0, 255).astype(np.uint8)[..., :3]
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3)))


def encode_gif(frames: Sequence[Any], *, fps: float = 15.0) -> bytes:
    """Encode an endlessly repeating GIF.

    Args:
        frames: Pictures of one size, in order; see :func:`to_frame`.
        fps: Frames per second. GIF counts in hundredths of a second, so 50 is the most.

    Returns:
        The bytes of the file.
    """
    pictures = [Image.fromarray(frame) for frame in _same_size(frames)]
    # The octree is seven times faster than the usual median cut, and flat colours stay exact.
    indexed = [
        picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        for picture in pictures
    ]
    stream = io.BytesIO()
    indexed[0].save(
        stream,
        format="GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=_frame_milliseconds(fps),
        loop=0,
    )
    return stream.getvalue()


def save_video(path: str | Path, frames: Sequence[Any], *, fps: float = 15.0) -> Path:
    """Write frames to ``path``; its ending chooses the format.

    Args:
        path: A file ending in ``.gif`` or ``.mp4``. Missing folders are made.
        frames: Pictures of one size, in order.
        fps: Frames per second.

    Returns:
        The path written.

    Raises:
        ValueError: Another ending, no frames, or frames of several sizes.
        ImportError: ``.mp4`` without imageio-ffmpeg.
    """
    path = check_video_path(path)
    arrays = _same_size(frames)
    _frame_milliseconds(fps)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".gif":
        path.write_bytes(encode_gif(arrays, fps=fps))
    else:
        _write_mp4(path, arrays, fps)
    return path


def check_video_path(path: str | Path) -> Path:
    """Refuse a file that could not be written in the end, before an hour is spent on frames."""
    path = Path(path)
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise ValueError(f"video path must end in .gif or .mp4, got {str(path)!r}")
    if path.suffix.lower() == ".mp4":
        _ffmpeg()
    return path


def _same_size(frames: Sequence[Any]) -> list[np.ndarray]:
    arrays = [to_frame(frame) for frame in frames]
    if not arrays:
        raise ValueError("frames must hold at least one picture, got none")
    sizes = sorted({array.shape for array in arrays})
    if len(sizes) > 1:
        raise ValueError(f"frames must have one size, got {sizes[0]} and {sizes[-1]}")
    return arrays


def _frame_milliseconds(fps: float) -> int:
    if not 0 < fps < float("inf"):
        raise ValueError(f"fps must be positive, got {fps}")
    return max(20, round(100 / fps) * 10)  # browsers slow anything under 20 ms down to 100 ms


def _ffmpeg() -> str:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            "an .mp4 video needs imageio-ffmpeg: pip install 'entity-encoder[video]'; "
            "a .gif needs nothing more"
        ) from error
    return str(imageio_ffmpeg.get_ffmpeg_exe())


def _write_mp4(path: Path, arrays: list[np.ndarray], fps: float) -> None:
    height, width = arrays[0].shape[:2]
    # H.264 stores colour at half resolution, so both sides have to be even.
    even = [np.pad(a, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge") for a in arrays]
    command = [_ffmpeg(), "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{even[0].shape[1]}x{even[0].shape[0]}", "-r", f"{fps:g}", "-i", "-"]
    command += ["-c:v", "libx264", "-pix_fmt", "yuv420p", str(path)]
    done = subprocess.run(command, input=b"".join(a.tobytes() for a in even), capture_output=True)
    if done.returncode:
        raise OSError(f"ffmpeg could not write {path}: {done.stderr.decode().strip()}")
