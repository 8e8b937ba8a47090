"""Attention as labelled matrices, one for each layer and head."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from entity_encoder.agents.attention.drawing import (
    PAPER,
    group_colours,
    side_by_side,
    stack,
    text_width,
    write,
)
from entity_encoder.agents.attention.look import Look
from entity_encoder.envs.rendering import PALETTE

__all__ = ["draw_matrix"]

WIDEST = 320  # pixels of one matrix, if its cells can be that large
CELLS = (4, 26)  # pixels, smallest and largest
READABLE = 9  # a cell at least this large has room for a label
HEADER = 26


def draw_matrix(look: Look) -> Image.Image:
    """Draw where each entity looks: rows ask, columns answer, darker is more.

    All matrices share one scale, whose darkest value stands in the heading. Labels that would
    overlap give way to the coloured bar of their group.
    """
    layers, heads, n, _ = look.attention.shape
    if not n:
        empty = Image.new("RGB", (260, HEADER), PAPER)
        write(empty, (8, HEADER / 2), "no entity is present")
        return empty
    highest = max(float(look.attention.max()), 1e-6)
    tiles = [
        [
            _tile(look, look.attention[layer, head], highest, f"layer {layer + 1}, head {head + 1}")
            for head in range(heads)
        ]
        for layer in range(layers)
    ]
    picture = stack([side_by_side(row) for row in tiles])
    text = f"a row's entity attends to a column's; white 0, darkest {highest:.2f}"
    legend = Image.new("RGB", (text_width([text], 12) + 16, HEADER), PAPER)
    write(legend, (8, HEADER / 2), text, size=12, colour="#5A626B")
    return stack([picture, legend], gap=0)


def _tile(look: Look, weights: np.ndarray, highest: float, title: str) -> Image.Image:
    """Draw one matrix (n, n) with its labels."""
    n = len(weights)
    cell = int(np.clip(WIDEST // n, *CELLS))
    size = min(cell - 1, 12)
    labels = look.labels if cell >= READABLE else [""] * n
    colours = group_colours(group for group, _ in look.entities)
    bar, room = 5, text_width(labels, max(size, 1)) + 8
    left, top = room + bar + 4, HEADER + room + bar + 4
    tile = Image.new("RGB", (max(left + n * cell + 8, 150), top + n * cell + 8), PAPER)
    write(tile, (8, HEADER / 2), title, size=14)
    tile.paste(_heat(weights / highest, cell), (left, top))
    draw = ImageDraw.Draw(tile)
    for i, ((group, _), label) in enumerate(zip(look.entities, labels, strict=True)):
        start = i * cell
        colour = colours[group]
        draw.rectangle((left - bar - 2, top + start, left - 3, top + start + cell - 1), colour)
        draw.rectangle((left + start, top - bar - 2, left + start + cell - 1, top - 3), colour)
        if label:
            write(tile, (room, top + start + cell / 2), label, size=size, anchor="rm")
            upright = Image.new("RGB", (room, cell), PAPER)
            write(upright, (2, cell / 2), label, size=size)
            tile.paste(upright.rotate(90, expand=True), (left + start, HEADER))
    draw.rectangle((left - 1, top - 1, left + n * cell, top + n * cell), outline=PALETTE["light"])
    return tile


def _heat(share: np.ndarray, cell: int) -> Image.Image:
    """Colour shares (n, n) from white to blue, each as a square of `cell` pixels."""
    low, high = (np.array(ImageColor.getrgb(c), float) for c in (PAPER, "#08306B"))
    pixels = low + np.clip(share, 0.0, 1.0)[..., None] * (high - low)  # (n, n, 3)
    return Image.fromarray(np.repeat(np.repeat(pixels.round().astype(np.uint8), cell, 0), cell, 1))
