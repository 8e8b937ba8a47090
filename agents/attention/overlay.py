"""Attention over the rendered frame: lines from who looks to what is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from entity_encoder.agents.attention.drawing import group_colours
from entity_encoder.agents.attention.look import Look

__all__ = ["ABOVE_EVEN", "Places", "draw_overlay"]

#: Pixel (x, y) of each entity in the frame, by group and slot.
Places = Mapping[tuple[str, int], tuple[float, float]]

#: Lines are drawn for weights of at least this many times an even share of the attention.
ABOVE_EVEN = 1.5
_FINER = 2  # drawn this many times larger: Pillow does not smooth edges
_BEND = 0.12  # how far a line bows out, so that there and back are two lines


def draw_overlay(
    frame: np.ndarray | Image.Image, places: Places, look: Look, weights: np.ndarray
) -> Image.Image:
    """Draw one map over a frame; a line's width and strength show the weight.

    A line has the colour of the group that looks and an arrow head at what is looked at; a ring is
    attention to itself. Weights below 1.5 times an even share are left out, so a frame without
    lines shows even attention.

    Args:
        frame: (height, width, 3) bytes, or a picture.
        places: Where entities stand in the frame; others get no line.
        look: Names the entities.
        weights: (n, n) attention of one layer and head, or a mean of several.
    """
    picture = frame if isinstance(frame, Image.Image) else Image.fromarray(frame)
    size = (picture.width * _FINER, picture.height * _FINER)
    sheet = Image.new("RGBA", size, (255, 255, 255, 0))
    draw = ImageDraw.Draw(sheet)
    colours = group_colours(group for group, _ in look.entities)
    least = ABOVE_EVEN / max(len(look.entities), 1)
    order = np.argsort(weights, axis=None)  # strong lines on top
    for i, j in zip(*np.unravel_index(order, weights.shape), strict=True):
        source, target, weight = look.entities[i], look.entities[j], float(weights[i, j])
        if weight < least or source not in places or target not in places:
            continue
        strength = math.sqrt(min(weight, 1.0))  # among many entities all weights are small
        ink = (*ImageColor.getrgb(colours[source[0]])[:3], round(70 + 185 * strength))
        _line(draw, places[source], places[target], ink, width=0.8 + 3.7 * strength)
    lines = sheet.reduce(_FINER)
    return Image.alpha_composite(picture.convert("RGBA"), lines).convert("RGB")


def _line(
    draw: ImageDraw.ImageDraw,
    start: tuple[float, float],
    end: tuple[float, float],
    ink: tuple[int, ...],
    width: float,
) -> None:
    """Draw a bowed arrow, or a ring where start and end are one."""
    thick = max(1, round(width * _FINER))
    (x0, y0), (x1, y1) = ((x * _FINER, y * _FINER) for x, y in (start, end))
    length = math.hypot(x1 - x0, y1 - y0)
    if length < 1.0:
        r = 11 * _FINER
        draw.ellipse((x0 - r, y0 - r, x0 + r, y0 + r), outline=ink, width=thick)
    else:
        bow = ((x0 + x1) / 2 - (y1 - y0) * _BEND, (y0 + y1) / 2 + (x1 - x0) * _BEND)
        t = np.linspace(0.0, 1.0, 24)[:, None]
        ends = np.array([[x0, y0], bow, [x1, y1]])
        curve = (1 - t) ** 2 * ends[0] + 2 * t * (1 - t) * ends[1] + t**2 * ends[2]  # (24, 2)
        draw.line([(float(x), float(y)) for x, y in curve], fill=ink, width=thick, joint="curve")
        angle = math.atan2(y1 - bow[1], x1 - bow[0])
        reach = (5.0 + 1.5 * width) * _FINER
        sides = [(angle + math.pi * turn) for turn in (0.86, -0.86)]
        tips = [(x1 + reach * math.cos(a), y1 + reach * math.sin(a)) for a in sides]
        draw.polygon([(x1, y1), *tips], fill=ink)
