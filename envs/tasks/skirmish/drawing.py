"""A picture of a battle."""

from __future__ import annotations

from PIL import Image
from torch import Tensor

from entity_encoder.envs.rendering import Canvas, blend
from entity_encoder.envs.tasks.skirmish.battle import ATTACK, FIELD, HEAL, KINDS, Kind

__all__ = ["draw_battle"]

COLOURS = {"ally": "blue", "enemy": "red"}
LEGEND = -1.1  # height at which the legend stands, below the field

Point = tuple[float, float]


def draw_battle(state: dict[str, Tensor]) -> Image.Image:
    """Draw one environment's state, given without the leading dimension."""
    canvas = Canvas((-0.3, -1.7, FIELD + 0.3, FIELD + 0.3))
    counts = [int((state[f"{name}_health"] > 0).sum()) for name in COLOURS]
    canvas.title(
        "Skirmish: blue must beat red",
        f"{counts[0]} against {counts[1]}, step {int(state['elapsed'])}",
    )
    canvas.rectangle((0.0, 0.0), (FIELD, FIELD), fill="#F1EDE0", outline="grey")
    size = 0.42 if len(state["ally_kind"]) <= 16 else 0.28
    units = {name: _units(state, name) for name in COLOURS}
    for name, other in (("ally", "enemy"), ("enemy", "ally")):
        for place, health, _, action in units[name]:
            if health > 0 and action >= ATTACK:
                canvas.line((place, units[other][action - ATTACK][0]), "orange", 1.5)
            if health > 0 and action == HEAL:
                canvas.circle(place, 1.9 * size, fill=blend("green", "white", 0.6))
    for name, colour in COLOURS.items():
        for slot, (place, health, kind, _) in enumerate(units[name]):
            if health > 0:
                canvas.mark(name, slot, place)
                _draw_unit(canvas, place, kind.name, colour, size)
                _draw_bar(canvas, place, health / kind.health, size)
    for x, kind in zip((0.5, 4.0, 7.2), KINDS, strict=True):
        _draw_unit(canvas, (x, LEGEND), kind.name, "grey", 0.35)
        canvas.text((x + 0.6, LEGEND), kind.name, "grey", 13, "lm")
    canvas.line(((10.3, LEGEND), (11.2, LEGEND)), "orange", 2)
    canvas.text((11.4, LEGEND), "attack", "grey", 13, "lm")
    canvas.circle((13.8, LEGEND), 0.35, fill=blend("green", "white", 0.6))
    canvas.text((14.4, LEGEND), "mends", "grey", 13, "lm")
    return canvas.image()


def _units(state: dict[str, Tensor], name: str) -> list[tuple[Point, float, Kind, int]]:
    """Return place, health, kind and last action of each slot."""
    x, y = state[f"{name}_place"].unbind(1)
    columns = (x, y, *(state[f"{name}_{part}"] for part in ("health", "kind", "action")))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [((x, y), health, KINDS[kind], action) for x, y, health, kind, action in rows]


def _draw_unit(canvas: Canvas, place: Point, kind: str, colour: str, size: float) -> None:
    """Draw a disc that shoots, a square that strikes, or a disc with a cross that mends."""
    x, y = place
    if kind == "melee":
        canvas.rectangle((x - size, y - size), (x + size, y + size), colour, "white", radius=0.1)
        return
    canvas.circle(place, size, fill=colour, outline="white")
    if kind == "ranged":
        canvas.circle(place, 0.35 * size, fill="white")
        return
    long, thin = 0.65 * size, 0.2 * size
    canvas.rectangle((x - long, y - thin), (x + long, y + thin), "white")
    canvas.rectangle((x - thin, y - long), (x + thin, y + long), "white")


def _draw_bar(canvas: Canvas, place: Point, share: float, size: float) -> None:
    """Draw how much health is left, above a unit."""
    x, y = place[0] - size, place[1] + 1.25 * size
    canvas.rectangle((x, y), (x + 2 * size, y + 0.3 * size), "white", "ink", 0.7)
    colour = blend("red", "green", 2.0 * share - 0.5)
    canvas.rectangle((x, y), (x + 2 * size * share, y + 0.3 * size), colour)
