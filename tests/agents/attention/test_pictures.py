"""Pictures show what they claim: checked pixel by pixel where the layout is known."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from entity_encoder.agents.attention import (
    ActionBar,
    Look,
    draw_matrix,
    draw_overlay,
    draw_sheet,
    visible_scene,
)
from entity_encoder.agents.environments import Environments
from entity_encoder.agents.recording import make_visible
from entity_encoder.envs import TASKS

ENTITIES = (("ship", 0), ("rock", 1), ("rock", 4))
FRAME = np.full((120, 150, 3), 255, np.uint8)
PLACES = {("ship", 0): (20.0, 60.0), ("rock", 1): (120.0, 60.0), ("rock", 4): (120.0, 20.0)}


def look(weights: Any = None, entities: Any = ENTITIES, layers: int = 2, heads: int = 3) -> Look:
    weights = np.eye(3) if weights is None else np.asarray(weights, float)
    maps = np.broadcast_to(weights, (layers, heads, *weights.shape))
    bars = (ActionBar("left", 0.25, "0.25"), ActionBar("right", 0.75, "0.75"))
    return Look(entities=entities, attention=maps, value=-1.5, actions=bars)


def touched(picture: Image.Image, x: slice, y: slice) -> bool:
    return bool((np.asarray(picture)[y, x] != 255).any())


def test_the_darkest_cell_of_a_matrix_is_the_largest_weight() -> None:
    weights = np.full((3, 3), 0.05)
    weights[0, 2] = 0.9
    picture = np.asarray(draw_matrix(look(weights, layers=1, heads=1)).convert("L")).astype(int)
    exact = np.asarray(draw_matrix(look(weights, layers=1, heads=1)))
    dark = (exact == (8, 48, 107)).all(-1)
    assert dark.sum() == 26 * 26  # one cell, in the colour of the largest weight
    rows, columns = np.nonzero(dark)
    # the row of cells begins two cells to the left of it, and two more rows lie below it
    assert picture[rows[0], columns[0] - 26] == picture[rows[0] + 26, columns[0]] > 200


def test_there_is_a_matrix_for_each_layer_and_head() -> None:
    corner = (8, 48, 107)  # the darkest cells: three of the diagonal in each matrix
    for layers, heads in ((1, 1), (2, 3), (3, 2)):
        picture = np.asarray(draw_matrix(look(layers=layers, heads=heads)))
        dark = (picture == corner).all(-1).sum()
        assert dark == layers * heads * 3 * 26 * 26


@pytest.mark.parametrize("count", [0, 1, 60, 200])
def test_a_matrix_of_any_number_of_entities_can_be_drawn(count: int) -> None:
    entities = tuple(("rock", slot) for slot in range(count))
    weights = np.full((count, count), 1 / max(count, 1))
    picture = draw_matrix(look(weights, entities, layers=1, heads=1))
    assert picture.width <= 4 * max(count, 64) + 300


def test_a_line_leads_from_who_looks_to_what_is_looked_at() -> None:
    weights = np.full((3, 3), 0.01)
    weights[0, 1] = 0.97
    picture = draw_overlay(FRAME, PLACES, look(), weights)
    assert touched(picture, slice(40, 100), slice(50, 80))  # half way, bowed
    assert not touched(picture, slice(0, 150), slice(0, 40))  # nothing leads to rock 4
    colours = {tuple(c) for c in np.asarray(picture).reshape(-1, 3)} - {(255, 255, 255)}
    assert max(colours, key=lambda c: c[2] - c[0])[2] > 150  # blue, the first group


def test_there_and_back_are_two_lines() -> None:
    there, back = np.zeros((3, 3)), np.zeros((3, 3))
    there[0, 1] = back[1, 0] = 1.0
    first, second = (np.asarray(draw_overlay(FRAME, PLACES, look(), w)) for w in (there, back))
    middle = np.s_[40:80, 60:80]
    rows = [np.nonzero((part[middle] != 255).any((1, 2)))[0].mean() for part in (first, second)]
    assert abs(rows[0] - rows[1]) > 5


def test_attention_to_itself_is_a_ring() -> None:
    picture = draw_overlay(FRAME, PLACES, look(), np.diag([1.0, 0.0, 0.0]))
    assert touched(picture, slice(7, 12), slice(55, 65))
    assert not touched(picture, slice(17, 23), slice(57, 63))


@pytest.mark.parametrize(
    ("weights", "places"),
    [(np.full((3, 3), 1 / 3), PLACES), (np.eye(3)[[1, 2, 0]], {("ship", 0): (20.0, 60.0)})],
    ids=["even attention", "unknown places"],
)
def test_no_line_is_drawn_for_even_attention_or_unknown_places(weights: Any, places: Any) -> None:
    assert not touched(draw_overlay(FRAME, places, look(), weights), slice(None), slice(None))


def test_a_sheet_has_a_frame_for_each_layer_and_head_and_the_actions_beside() -> None:
    each, mean = (draw_sheet(look(), FRAME, PLACES, maps=m) for m in ("each", "mean"))
    assert each.width - mean.width == 2 * (150 + 12)
    assert each.height >= 2 * (120 + 24) + 12
    bars = np.asarray(mean)[:, 150:]
    green = (bars == (0, 158, 115)).all(-1)  # the likeliest action's bar
    # 0.75 of the full length of 70, ends included
    assert green.any(1).sum() == 15
    assert green.sum(1).max() == pytest.approx(0.75 * 70, abs=1)


def test_without_places_the_frame_stands_alone() -> None:
    sheet = draw_sheet(look(), FRAME, {})
    assert sheet.width == 150 + 12 + 250
    assert not touched(sheet, slice(0, 150), slice(0, 120))


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"RockPaperScissors"}))
def test_tasks_mark_their_entities_inside_the_frame(task: str) -> None:
    envs = make_visible(f"Entity/{task}-v0")
    observation = envs.reset(seed=3)
    frame, places = visible_scene(envs)
    envs.close()
    for group in envs.schema.groups:
        if group.features or group.name == "bean":
            for slot in observation[f"{group.name}_mask"][0].nonzero().flatten().tolist():
                x, y = places[group.name, slot]
                assert 0 <= x < frame.shape[1]
                assert 0 <= y < frame.shape[0]


class Dots(gymnasium.Env[Any, Any]):
    """An environment of somebody else's: grey frames, and no word about places."""

    observation_space = spaces.Dict(
        dot=spaces.Box(0, 1, (2, 1), np.float32), dot_mask=spaces.MultiBinary(2)
    )
    action_space = spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}

    def render(self) -> Any:
        return np.full((5, 7, 3), 90, np.uint8)


def test_another_environment_has_frames_without_places() -> None:
    envs = Environments(gymnasium.vector.SyncVectorEnv([Dots]))
    envs.reset(seed=3)
    frame, places = visible_scene(envs)
    assert (frame == 90).all()
    assert places == {}
