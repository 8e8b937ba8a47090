"""Photograph a run's TensorBoard for the pages: `python -m benchmarks.screenshots [RUNS]`.

The run is one with `--attention-every` and `--film-every`; of several runs the attention of the
first is taken.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.browser import Browser
from entity_encoder.agents.curves import find_runs
from entity_encoder.agents.watch import TensorBoard

__all__ = ["main"]

IMAGES = Path("docs/images")
# By name: where the tab is, and what stands there when it is complete.
TABS = {
    "scalars": ("#custom_scalars", ("Does it learn?", "episode length")),
    "images": ("#images", ("attention/frame", "attention/matrix")),
}
# Text comes before curves and pictures do; whether these have arrived cannot be asked.
SETTLED = "new Promise(done => setTimeout(done, 6000))"


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Open each tab, photograph it, take the latest attention picture, and return the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", default="runs", help="a run, or a directory of runs")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder to write to")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    files = []
    with TensorBoard(options.runs, port=0) as board, Browser((1500, 1000)) as browser:
        for name, (tab, words) in TABS.items():
            browser.open(f"{board.url}{tab}")
            browser.wait_for(*words)
            browser.evaluate(SETTLED)
            files.append(_save(browser.screenshot(), options.out / f"tensorboard-{name}.png"))
    log = EventAccumulator(str(find_runs([options.runs])[0]))
    log.Reload()
    latest = log.Images("attention/frame")[-1].encoded_image_string
    return [*files, _save(latest, options.out / "attention.png")]


def _save(picture: bytes, path: Path) -> Path:
    """Write a picture with few colours, for a page is read over slow lines too."""
    colours = Image.open(io.BytesIO(picture)).convert("RGB")
    few = colours.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path)
    return path


if __name__ == "__main__":
    main()
