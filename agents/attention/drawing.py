"""What the pictures share: fonts, colours of the groups, text and tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PIL import Image, ImageDraw, ImageFont

from entity_encoder.envs.rendering import PALETTE

__all__ = ["PAPER", "group_colours", "side_by_side", "stack", "text_width", "write"]

PAPER = PALETTE["white"]
_COLOURS = ("blue", "red", "green", "pink", "orange", "sky", "grey", "ink")


def group_colours(groups: Iterable[str]) -> dict[str, str]:
    """Give each group a colour, in order of appearance."""
    names = list(dict.fromkeys(groups))
    return {name: PALETTE[_COLOURS[i % len(_COLOURS)]] for i, name in enumerate(names)}


def write(
    image: Image.Image,
    place: tuple[float, float],
    text: str,
    *,
    size: float = 13,
    colour: str = PALETTE["ink"],
    anchor: str = "lm",
) -> None:
    """Write text; `anchor` as in Pillow."""
    font = ImageFont.load_default(size)
    ImageDraw.Draw(image).text(place, text, fill=colour, font=font, anchor=anchor)


def text_width(texts: Iterable[str], size: float) -> int:
    """Return how many pixels the longest of some texts takes."""
    font = ImageFont.load_default(size)
    return round(max((font.getlength(text) for text in texts), default=0.0))


def side_by_side(pictures: Sequence[Image.Image], gap: int = 12) -> Image.Image:
    """Put pictures into one row, tops aligned."""
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    row = Image.new("RGB", (width, max(picture.height for picture in pictures)), PAPER)
    x = 0
    for picture in pictures:
        row.paste(picture, (x, 0))
        x += picture.width + gap
    return row


def stack(pictures: Sequence[Image.Image], gap: int = 12) -> Image.Image:
    """Put pictures into one column, left sides aligned."""
    height = sum(picture.height for picture in pictures) + gap * (len(pictures) - 1)
    column = Image.new("RGB", (max(picture.width for picture in pictures), height), PAPER)
    y = 0
    for picture in pictures:
        column.paste(picture, (0, y))
        y += picture.height + gap
    return column
