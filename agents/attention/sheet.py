"""One picture of a moment: the frame with attention over it, value and actions beside it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from PIL import Image, ImageDraw

from entity_encoder.agents.attention.drawing import (
    PAPER,
    group_colours,
    side_by_side,
    stack,
    write,
)
from entity_encoder.agents.attention.look import CLASS_TOKEN, Look
from entity_encoder.agents.attention.overlay import ABOVE_EVEN, Places, draw_overlay
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.recording import first_frame
from entity_encoder.envs.rendering import PALETTE

__all__ = ["draw_sheet", "visible_scene"]

TILE = 360  # pixels: a frame's longest side where several stand side by side
PANEL = 250  # pixels: width of the panel with value and actions
BARS = 14  # at most this many actions are listed
LINE = 22  # pixels between two lines of text
TITLE = 24


def visible_scene(envs: Environments) -> tuple[np.ndarray, Places]:
    """Return the first environment's frame, and where its entities stand in it.

    The places come from `EntityVectorEnv.picture`; for other environments they are empty.

    Raises:
        ValueError: The environment draws no frames.
    """
    task: Any = envs.env.unwrapped
    if not hasattr(task, "picture"):
        return first_frame(envs.render()), {}
    picture = task.picture(0)
    return np.asarray(picture), picture.info.get("places", {})


def draw_sheet(
    look: Look,
    frame: np.ndarray,
    places: Places,
    *,
    maps: Literal["each", "mean"] = "each",
) -> Image.Image:
    """Draw the frame with attention over it, and the policy's intentions beside it.

    Args:
        look: What the policy sees and thinks.
        frame: (height, width, 3) bytes.
        places: Where entities stand in it; without any, the frame is shown once and plain.
        maps: "each" shows every layer and head in a frame of its own; "mean" shows one frame with
            the mean over all of them.
    """
    if not places:
        tiles = Image.fromarray(frame)
    elif maps == "mean":
        overlay = draw_overlay(frame, places, look, look.attention.mean((0, 1)))
        tiles = _titled(overlay, "attention, mean of layers and heads")
    else:
        tiles = stack([_row(look, frame, places, layer) for layer in range(len(look.attention))])
    panel = _panel(look, tiles.height, with_lines=bool(places))
    return side_by_side([tiles, panel])


def _row(look: Look, frame: np.ndarray, places: Places, layer: int) -> Image.Image:
    """Draw all heads of a layer."""
    scale = min(1.0, TILE / max(frame.shape[:2]))
    size = (round(frame.shape[1] * scale), round(frame.shape[0] * scale))
    small = Image.fromarray(frame).resize(size, Image.Resampling.LANCZOS)
    there = {entity: (x * scale, y * scale) for entity, (x, y) in places.items()}
    return side_by_side(
        [
            _titled(draw_overlay(small, there, look, weights), f"layer {layer + 1}, head {h + 1}")
            for h, weights in enumerate(look.attention[layer])  # (n, n)
        ]
    )


def _titled(picture: Image.Image, title: str) -> Image.Image:
    heading = Image.new("RGB", (picture.width, TITLE), PAPER)
    write(heading, (8, TITLE / 2), title, size=14)
    return stack([heading, picture], gap=0)


def _panel(look: Look, height: int, *, with_lines: bool) -> Image.Image:
    """Write the value, draw the actions as bars, and explain the colours of the lines."""
    kinds = [kind for kind in group_colours(g for g, _ in look.entities) if kind != CLASS_TOKEN[0]]
    shown = sorted(look.actions, key=lambda bar: -bar.share)[:BARS]
    kept = [bar for bar in look.actions if bar in shown][:BARS]
    lines = 6 + len(kept) + (len(kinds) + 3 if with_lines else 0)
    panel = Image.new("RGB", (PANEL, max(height, lines * LINE)), PAPER)
    draw = ImageDraw.Draw(panel)
    y = LINE
    write(panel, (0, y), f"value  {look.value:+.3f}", size=16)
    y += LINE
    write(panel, (0, y), "discounted return from here, scaled", size=11, colour="#5A626B")
    y += round(1.5 * LINE)
    more = len(look.actions) - len(kept)
    write(panel, (0, y), "actions" + (f" ({more} less likely left out)" if more else ""), size=14)
    likeliest = max((bar.share for bar in kept), default=0.0)
    for bar in kept:
        y += LINE
        full = PANEL - 180
        write(panel, (0, y), bar.label, size=12)
        draw.rectangle((90, y - 7, 90 + full, y + 7), fill="#EEF0F3")
        colour = PALETTE["green"] if bar.share == likeliest else PALETTE["grey"]
        length = full * min(max(bar.share, 0.0), 1.0)
        if length >= 1:
            draw.rectangle((90, y - 7, 90 + length, y + 7), fill=colour)
        write(panel, (98 + full, y), bar.text, size=12)
    if with_lines:
        y += 2 * LINE
        write(panel, (0, y), "lines: who looks (colour) at what", size=13)
        colours = group_colours(group for group, _ in look.entities)
        for kind in kinds:
            y += LINE
            draw.rectangle((4, y - 4, 24, y + 4), fill=colours[kind])
            write(panel, (32, y), kind, size=12)
        y += LINE
        text = f"at least {ABOVE_EVEN} x an even share"
        write(panel, (0, y), text, size=11, colour="#5A626B")
    return panel
