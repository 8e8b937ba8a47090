"""MultiSnake: several snakes on one board, each with food of its own colour."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Global, Group, check_option
from entity_encoder.envs.rendering import Canvas, blend
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.tasks.paths import STEPS, distances
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import PerEntity

__all__ = ["MultiSnake"]

LONGEST = 11
SHOWN = ("green", "blue", "orange", "pink", "red", "sky", "yellow", "grey")


class MultiSnake(EntityVectorEnv):
    """Feed several snakes on one board, each with food of its own colour.

    ## Description
    All heads move in each step, one after the other in the order of their slots. A snake that
    eats food of its colour grows by one, and after all moves new food appears on a free place.
    The body follows the head; the place that the tail leaves in this move is not free yet.

    ## Action Space
    `PerEntity("head", num_snakes, 4)`: each head moves up, right, down or left (y points up).

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `head` | (num_snakes, 3) | x, y from 0 to size - 1; colour, a number |
    | `body` | (10 num_snakes, 3) | x, y; colour |
    | `food` | (num_snakes, 3) | x, y; colour |
    | `<group>_mask` | (slots,) | 1 where there is one |
    | `step` | (1,) | share of the time that is used up |

    `entity_schema` says that places form a grid: entities then see each other by relative position.

    ## Rewards
    1 / (10 num_snakes) for each meal of a snake shorter than 11: no policy exceeds 1. Measured
    with 1 / 2 snakes: random moves .010 / .004 (2,000 episodes); `reference_policy`, which goes
    the shortest free way to the food, 1.000 / .926 (500 episodes). Score 0 is random, 1 the bound.

    ## Starting State
    Heads of length 1 and their food on places drawn without replacement.

    ## Episode End
    Termination: a head meets the wall, any body, or food of another colour; or all snakes are 11
    long. Truncation: after `max_episode_steps` steps.

    ## Arguments
    - `num_snakes` (1): 1 to 8.
    - `size` (10): places along each side of the board, 5 to 32.
    - `max_episode_steps` (180).
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        num_snakes: int = 1,
        size: int = 10,
        max_episode_steps: int = 180,
        **options: Any,
    ) -> None:
        self.num_snakes = check_option("num_snakes", num_snakes, 1, len(SHOWN))
        self.size = check_option("size", size, 5, 32)
        edge, last = (0.0, size - 1.0), (0.0, max(num_snakes - 1.0, 1.0))
        columns, xy = {"x": edge, "y": edge, "colour": last}, ("x", "y")
        own = ("cells", "length", "colour")
        food = ("food", "food_colour")
        pieces = num_snakes * (LONGEST - 1)
        super().__init__(
            num_envs,
            groups=(
                Group("head", num_snakes, columns, positions=xy, state=own),
                Group("body", pieces, columns, positions=xy, state=("piece",)),
                Group("food", num_snakes, columns, positions=xy, state=food),
            ),
            global_features=(Global("step"),),
            grid=1.0,
            action_space=PerEntity("head", num_snakes, len(STEPS)),
            max_episode_steps=max_episode_steps,
            **options,
        )
        self.time_limit = max_episode_steps
        self.random_return = 0.0095 / num_snakes**1.3  # fits .0095, .0040, .0022 for 1, 2, 3
        self._steps = torch.tensor(STEPS).to(self.device)

    def initial(self, rng: Rng) -> State:
        """Place heads and food."""
        k = self.num_snakes
        places = rng.permutation(self.size**2)[:, : 2 * k]
        names = torch.arange(k, device=rng.device).expand(len(rng), k)
        cells = places[:, :k, None].repeat(1, 1, LONGEST)
        pieces = torch.arange(k * (LONGEST - 1), device=rng.device)
        return {
            "cells": cells,  # (E, snakes, 11), head first; a place is size * y + x
            "length": torch.ones_like(names),
            "colour": names.clone(),
            "food": places[:, k:],
            "food_colour": names.clone(),
            "piece": pieces.expand(len(rng), -1).clone(),  # which piece stands in a body slot
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Move one head after the other, until one comes to grief."""
        cells, length, food = state["cells"], state["length"], state["food"]
        reward = torch.zeros(len(cells), device=cells.device)
        dead = torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
        eaten = torch.zeros_like(food, dtype=torch.bool)
        for s in range(self.num_snakes):
            ahead, outside = self._ahead(cells[:, s, 0], action[:, s])
            hit = self._occupied(cells, length).gather(1, ahead[:, None])[:, 0]
            there = (food == ahead[:, None]) & ~eaten  # (E, foods)
            own = state["food_colour"] == state["colour"][:, s, None]
            dead = dead | outside | hit | (there & ~own).any(1)
            meal = there & own & ~dead[:, None]
            eats = meal.any(1)
            grows = eats & (length[:, s] < LONGEST)
            reward = reward + grows * (0.1 / self.num_snakes)
            moved = torch.cat((ahead[:, None], cells[:, s, :-1]), 1)
            moved = torch.where(dead[:, None], cells[:, s], moved)
            cells = torch.cat((cells[:, :s], moved[:, None], cells[:, s + 1 :]), 1)
            length = length.clone()
            length[:, s] += grows
            eaten = eaten | meal
        # New food comes last: it never appears right before a head that must move on.
        chance = rng.uniform(self.num_snakes)
        for f in range(self.num_snakes):
            free = ~self._occupied(cells, length).scatter(1, food, True)
            fresh = torch.where(eaten[:, f], _choose(free, chance[:, f]), food[:, f])
            food = torch.cat((food[:, :f], fresh[:, None], food[:, f + 1 :]), 1)
        done = dead | (length == LONGEST).all(1)
        return {**state, "cells": cells, "length": length, "food": food}, reward, done, None

    def _ahead(self, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the place one step on (unchanged if there is none), and where there is none."""
        step = self._steps[action]
        x, y = place % self.size + step[:, 0], place // self.size + step[:, 1]
        outside = (x < 0) | (x >= self.size) | (y < 0) | (y >= self.size)
        return torch.where(outside, place, y * self.size + x), outside

    def _occupied(self, cells: Tensor, length: Tensor) -> Tensor:
        """Return where any part of any snake is, (E, size * size)."""
        exists = torch.arange(LONGEST, device=cells.device) < length[:, :, None]
        index = torch.where(exists, cells, self.size**2).flatten(1)
        board = torch.zeros(len(cells), self.size**2 + 1, dtype=torch.bool, device=cells.device)
        return board.scatter(1, index, True)[:, :-1]

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show heads, bodies and food by place and colour."""
        cells, colour = state["cells"], state["colour"]
        piece = state["piece"]  # (E, slots)
        body = cells[:, :, 1:].flatten(1).gather(1, piece)
        snake, rank = piece // (LONGEST - 1), piece % (LONGEST - 1)
        exists = rank + 1 < state["length"].gather(1, snake)
        return {
            "head": self._columns(cells[:, :, 0], colour),
            "body": self._columns(body, colour.gather(1, snake)) * exists[:, :, None],
            "body_mask": exists,
            "food": self._columns(state["food"], state["food_colour"]),
            "step": (state["elapsed"] / self.time_limit)[:, None],
        }

    def _columns(self, place: Tensor, colour: Tensor) -> Tensor:
        return torch.stack((place % self.size, place // self.size, colour), 2).float()

    def optimum(self, state: State) -> Tensor:
        """Return a bound that no policy exceeds, (E,): every snake grown up."""
        return torch.ones_like(state["colour"][:, 0], dtype=torch.float32)

    def reference_policy(self, state: State) -> Tensor:
        """Go the shortest free way to the food that leads into no dead end."""
        cells, length, size = state["cells"], state["length"], self.size
        actions = []
        for s in range(self.num_snakes):
            own = state["food_colour"] == state["colour"][:, s, None]
            blocked = self._occupied(cells, length)
            others = torch.zeros_like(blocked).scatter(1, state["food"], ~own)
            blocked = (blocked | others).view(-1, size, size)
            goal = torch.zeros_like(blocked).flatten(1).scatter(1, state["food"], own)
            far = distances(goal.view(-1, size, size), blocked, size * size // 2)
            head = cells[:, s, 0]
            options = [self._ahead(head, torch.full_like(head, a)) for a in range(len(STEPS))]
            place = torch.stack([ahead for ahead, _ in options], 1)  # (E, 4)
            shut = torch.stack([outside for _, outside in options], 1)
            shut = shut | blocked.flatten(1).gather(1, place)
            room = self._room(place, blocked)
            cost = far.flatten(1).gather(1, place).clamp(max=1e4)
            tight = room < 2 * LONGEST  # could become a trap: take it only for want of better
            cost = cost + tight * (1e5 - 1e3 * room) + shut * 1e6
            best = cost.argmin(1)
            actions.append(best)
            # The next snake sees where this one will be, a piece longer if it eats.
            ahead = place.gather(1, best[:, None])
            eats = ((state["food"] == ahead) & own).any(1) & (length[:, s] < LONGEST)
            length = length.clone()
            length[:, s] += eats
            moved = torch.cat((ahead, cells[:, s, :-1]), 1)
            cells = torch.cat((cells[:, :s], moved[:, None], cells[:, s + 1 :]), 1)
        return torch.stack(actions, 1)

    def _room(self, place: Tensor, blocked: Tensor) -> Tensor:
        """Count the places that can be reached from each of four, (E, 4)."""
        size, ways = self.size, len(STEPS)
        start = torch.zeros(*place.shape, size * size, dtype=torch.bool, device=place.device)
        start = start.scatter(2, place[:, :, None], True).view(-1, size, size)
        wall = blocked.repeat_interleave(ways, 0)
        reached = distances(start, wall, 2 * LONGEST).isfinite() & (~wall | start)
        return reached.flatten(1).sum(1).view(-1, ways)

    def render_frame(self, state: State) -> Image.Image:
        """Show the board: bodies with eyes on the head, food as dots, one colour a snake."""
        n = self.size
        canvas = Canvas((0, 0, n, n))
        lengths = "/".join(str(v) for v in state["length"].tolist())
        canvas.title(f"MultiSnake: length {lengths} of {LONGEST}", f"step {int(state['elapsed'])}")
        for x in range(n):
            for y in range(n):
                shade = "#F1EDE0" if (x + y) % 2 else "#EAE5D4"
                canvas.rectangle((x, y), (x + 1, y + 1), shade)

        def centre(place: int) -> tuple[float, float]:
            return place % n + 0.5, place // n + 0.5

        foods = zip(state["food"].tolist(), state["food_colour"].tolist(), strict=True)
        for place, colour in foods:
            canvas.circle(centre(place), 0.3, SHOWN[colour], "ink", 1.5)
        snakes = zip(state["cells"].tolist(), state["length"].tolist(), strict=True)
        for (cells, length), name in zip(snakes, state["colour"].tolist(), strict=True):
            points = [centre(place) for place in cells[:length]]
            if length > 1:
                canvas.line(points, SHOWN[name], canvas.pixels(0.62))
            for point in points:
                canvas.circle(point, 0.31, SHOWN[name])
            head = points[0]
            canvas.circle(head, 0.4, blend(SHOWN[name], "ink", 0.25))
            for side in (-0.14, 0.14):
                canvas.circle((head[0] + side, head[1] + 0.1), 0.09, "white")
                canvas.circle((head[0] + side, head[1] + 0.1), 0.04, "ink")
        shown = self.observe({key: value[None] for key, value in state.items()})
        for group in self.groups:
            for slot, (x, y, _) in enumerate(shown[group.name][0].tolist()):
                canvas.mark(group.name, slot, (x + 0.5, y + 0.5))
        return canvas.image()


def _choose(free: Tensor, chance: Tensor) -> Tensor:
    """Draw one True place of each row, given a number from [0, 1)."""
    rank = (chance.double() * free.sum(1)).long()  # float64, so that rounding never reaches the end
    return (free.long().cumsum(1) > rank[:, None]).long().argmax(1)
