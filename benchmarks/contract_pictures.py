"""Draw the pictures of the page on observations: `python -m benchmarks.contract_pictures [FOLDER]`.

Padding and holes are those of real episodes; the third shows which choices of actors are legal.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import entity_encoder.envs  # noqa: F401  (registers the tasks)
from entity_encoder import EntityEncoder, PerEntity
from entity_encoder.heads import make_action_head

__all__ = ["draw_holes", "draw_legal", "draw_padding", "main"]

THERE, ABSENT, INK, GREY = "#0072B2", "#E8EAEE", "#22262B", "#666E77"
TARGETS, MOVES = 5, ("stay", "left", "right")


def draw_padding() -> Figure:
    """A state of Minefield as a scene, and the same as tables with masks."""
    env = gymnasium.make("Entity/Minefield-v0", max_mines=7, render_mode="rgb_array")
    observation, _ = env.reset(seed=78)
    figure = Figure(figsize=(9, 4.2))
    scene, table = figure.subplots(1, 2, width_ratios=(1, 1.25))
    scene.imshow(np.asarray(env.render()))
    scene.set_title("what there is", loc="left")
    scene.axis("off")
    table.set_title("what the policy gets", loc="left")
    table.axis("off")
    columns = {"vehicle": ("x", "y", "heading"), "target": ("x", "y"), "mine": ("x", "y")}
    row = 0.0
    for group, names in columns.items():
        _label(table, 0, row, f"{group}", colour=INK, align="left", weight="bold")
        for j, name in enumerate((*names, "mask")):
            place = 4 if name == "mask" else 1 + j
            _label(table, place + 0.5, row, f"{group}_mask" if name == "mask" else name)
        for slot, there in enumerate(observation[f"{group}_mask"].tolist()):
            row += 1
            _label(table, 0.1, row, f"slot {slot}", align="left")
            for j, value in enumerate(observation[group][slot].tolist()):
                text = f"{value:.1f}" if there else "anything"
                _cell(table, 1 + j, row, text, there)
            _cell(table, 4, row, str(there), there)
        row += 1.4
    table.set_xlim(-0.1, 5.1)
    table.set_ylim(row, -0.8)
    figure.tight_layout()
    env.close()
    return figure


def draw_holes() -> Figure:
    """Which slots are filled, step by step, in an episode of Triage."""
    env: Any = gymnasium.make("Entity/Triage-v0", max_jobs=10, min_jobs=9)
    observation, _ = env.reset(seed=3)
    masks, done, chosen = [observation["job_mask"]], [], False
    while not chosen:
        action = env.unwrapped.reference_action()
        done.append(int(action))
        observation, _, chosen, _, _ = env.step(action)
        masks.append(observation["job_mask"])
    figure = Figure(figsize=(7, 3.6))
    axes = figure.subplots()
    for step, mask in enumerate(masks):
        for slot, there in enumerate(mask.tolist()):
            _cell(axes, step, slot, str(there), there, width=0.9)
        if step < len(done):
            axes.plot(step + 0.45, done[step], "o", mfc="none", mec="#D55E00", ms=17, mew=2)
    axes.set_xlim(-0.2, len(masks))
    axes.set_ylim(len(masks[0]) - 0.4, -0.6)
    axes.set_xticks(np.arange(len(masks)) + 0.45, [str(step) for step in range(len(masks))])
    axes.set_yticks(range(len(masks[0])))
    axes.set(xlabel="step", ylabel="slot")
    axes.set_title("job_mask in an episode (ring: the job done next)", loc="left", size=10)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.tight_layout()
    return figure


def draw_legal() -> Figure:
    """Presence and `action_mask` together: what each ally may choose."""
    space = spaces.Dict(
        ally=spaces.Box(-1, 1, (3, 2)),
        ally_mask=spaces.MultiBinary(3),
        enemy=spaces.Box(-1, 1, (TARGETS, 2)),
        enemy_mask=spaces.MultiBinary(TARGETS),
        action_mask=spaces.MultiBinary([3, len(MOVES) + TARGETS]),
    )
    observation = space.sample()
    observation["ally_mask"][:] = [1, 1, 0]
    observation["enemy_mask"][:] = [1, 0, 1, 1, 0]
    observation["action_mask"][:] = 1
    observation["action_mask"][0, len(MOVES) + 2 :] = 0  # out of reach
    encoder = EntityEncoder(space)
    head = make_action_head(
        PerEntity("ally", 3, len(MOVES), target="enemy", target_slots=TARGETS), encoder
    )
    with torch.no_grad():
        probabilities = head(encoder(observation), observation).probs.numpy()  # (3, 8)
    figure = Figure(figsize=(9, 2.9))
    axes = figure.subplots()
    axes.axis("off")
    for j, name in enumerate((*MOVES, *(f"enemy {slot}" for slot in range(TARGETS)))):
        _label(axes, j + 0.45, -0.7, name)
    for actor in range(3):
        there = bool(observation["ally_mask"][actor])
        _label(axes, -0.1, actor, f"ally {actor}", align="right")
        for j in range(len(MOVES) + TARGETS):
            legal = bool(probabilities[actor, j] > 0) and there
            if not there:
                why = "absent"
            elif legal:
                why = f"p = {probabilities[actor, j]:.2f}"
            else:
                gone = j >= len(MOVES) and not observation["enemy_mask"][j - len(MOVES)]
                why = "nobody" if gone else "masked"
            _cell(axes, j, actor, why, legal, width=0.9)
    axes.set_xlim(-1, len(MOVES) + TARGETS)
    axes.set_ylim(2.6, -1.1)
    axes.set_title("PerEntity(ally, 3, 3, target=enemy): what each may choose", loc="left")
    figure.tight_layout()
    return figure


def main(argv: list[str] | None = None) -> list[Path]:
    """Write all three; return the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("docs/images"))
    folder = parser.parse_args(argv).folder
    torch.manual_seed(0)
    pictures = {"padding": draw_padding, "holes": draw_holes, "legal-choices": draw_legal}
    files = []
    for name, draw in pictures.items():
        files.append(folder / f"{name}.png")
        draw().savefig(files[-1], dpi=110, facecolor="white")
    return files


def _cell(
    axes: Axes, x: float, y: float, text: str, there: bool | int, width: float = 0.95
) -> None:
    colour, shown = (THERE, "white") if there else (ABSENT, GREY)
    axes.fill_between([x, x + width], y - 0.42, y + 0.42, color=colour, linewidth=0)
    _label(axes, x + width / 2, y, text, colour=shown)


def _label(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    colour: str = GREY,
    align: str = "center",
    weight: str = "normal",
) -> None:
    axes.text(x, y, text, color=colour, ha=align, va="center", size=8, weight=weight)


if __name__ == "__main__":
    main()
