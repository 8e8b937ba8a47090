"""Photograph a run's TensorBoard for the pages: `python -m benchmarks.screenshots [RUNS]`."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from benchmarks.browser import Browser
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
    """Open each tab, photograph it, and return the files."""
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
            picture = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
            files.append(options.out / f"tensorboard-{name}.png")
            few = picture.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
            few.save(files[-1], optimize=True)
            print(files[-1])
    return files


if __name__ == "__main__":
    main()
