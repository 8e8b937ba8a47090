"""TensorBoard of a finished run, opened in a real browser: what a person sees there."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.browser import Browser, find_browser
from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import AttentionMaps, Embeddings, Evaluation, Film
from entity_encoder.agents.watch import TensorBoard

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_browser() is None, reason="no Chromium is installed: apt-get install chromium"
    ),
]
# The pictures of a page, also inside shadow trees, that have arrived: their widths by address.
PICTURES = """(() => { const found = []; const walk = node => {
  if (node.nodeName === "IMG" && node.complete) found.push(node.naturalWidth);
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.childNodes) walk(child); };
  if (document.body) walk(document.body); return found.filter(width => width > 0); })()"""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorBoard]:
    run_dir = tmp_path_factory.mktemp("runs") / "lava"
    config = PPOConfig(
        total_steps=270, num_envs=5, rollout_steps=9, d_model=8, n_layers=1, threads=1, epochs=1
    )
    watching: list[Any] = [
        Evaluation(every=90, episodes=7),
        AttentionMaps(every=90),
        Film(),
        Embeddings(),
    ]
    agent = PPO(
        "Entity/FloorIsLava-v0", config, run_dir=run_dir, callbacks=watching, progress=False
    )
    agent.learn()
    with TensorBoard(run_dir, port=0) as board:
        yield board


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def test_the_scalar_tab_holds_the_charts(board: TensorBoard, browser: Browser) -> None:
    browser.open(f"{board.url}#scalars&tagFilter=episode%7Cevaluation")
    browser.wait_for("tag: episode/return", "tag: evaluation/return", "tag: episode/score")
    for group in ("loss", "policy", "value", "optimiser", "speed", "time", "return_by_entities"):
        browser.wait_for(group)


def test_the_image_tab_holds_attention_and_film(board: TensorBoard, browser: Browser) -> None:
    browser.open(f"{board.url}#images")
    browser.wait_for("tag: attention/frame", "tag: attention/matrix", "tag: policy/film")
    widths = browser.wait_until(PICTURES, lambda found: len(found) >= 3)
    assert 480 in widths  # the film has the size of the task's frames
    screen = np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("RGB"))
    assert (screen == (0, 158, 115)).all(-1).sum() > 100  # the green of the task's high ground


def test_the_first_charts_are_arranged(board: TensorBoard, browser: Browser) -> None:
    browser.open(f"{board.url}#custom_scalars")
    browser.wait_for("Does it learn?", "evaluation with its 95 % interval", "return")


def test_settings_and_results_stand_side_by_side(board: TensorBoard, browser: Browser) -> None:
    browser.open(f"{board.url}#hparams")
    browser.wait_for("learning_rate", "evaluation/return", "lava")


def test_versions_and_revision_are_told(board: TensorBoard, browser: Browser) -> None:
    browser.open(f"{board.url}#text")
    browser.wait_for("git revision", "torch", "gymnasium")


def test_the_projector_holds_the_entities(board: TensorBoard, browser: Browser) -> None:
    browser.open(f"{board.url}#projector")
    browser.wait_for("entities at step 270", "kind")


def test_what_a_page_lacks_is_named(board: TensorBoard, browser: Browser, tmp_path: Path) -> None:
    browser.open(f"{board.url}#text")
    patience, browser.timeout = browser.timeout, 0.5
    try:
        with pytest.raises(TimeoutError, match=r"page must show \['no such word'\] within 0.5 s"):
            browser.wait_for("no such word")
    finally:
        browser.timeout = patience
    with pytest.raises(RuntimeError, match=r"No\.such failed"):
        browser.send("No.such")
