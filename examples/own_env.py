"""An environment of your own, stepped as arrays: a thousand copies cost little more than one.

python examples/own_env.py                 # check it
entity-encoder train examples.own_env:Harvest-v0 --total-steps 300_000 --film-every 100_000
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder import EgoFrame
from entity_encoder.envs import EntityVectorEnv, Group, Rng, State, check_entity_env, register_task
from entity_encoder.envs.rendering import Canvas

MOVES = ((0.0, 0.05), (0.05, 0.0), (0.0, -0.05), (-0.05, 0.0))  # up, right, down, left
POINT = {"x": (0.0, 1.0), "y": (0.0, 1.0)}  # columns and their bounds


class Harvest(EntityVectorEnv):
    """Pick all the fruit on a field; the sting of a wasp ends the episode."""

    def __init__(
        self, num_envs: int = 1, *, max_fruit: int = 8, wasps: int = 3, **options: Any
    ) -> None:
        self.max_fruit, self.wasps = max_fruit, wasps
        groups = (  # `state` names the tensors below with a row for each slot
            Group("picker", 1, POINT, positions=("x", "y")),
            Group("fruit", max_fruit, POINT, positions=("x", "y"), state=("fruit", "ripe")),
            Group("wasp", wasps, POINT, positions=("x", "y"), state=("wasp",)),
        )
        options = {"max_episode_steps": 100, "frame": EgoFrame("picker"), **options}
        super().__init__(num_envs, groups=groups, action_space=spaces.Discrete(4), **options)
        self.moves = torch.tensor(MOVES, device=self.device)

    def initial(self, rng: Rng) -> State:
        """Draw the first state of as many episodes, E, as `rng` has rows."""
        count = rng.integers(self.max_fruit + 1, 1, low=1)  # (E, 1): 1 to max_fruit
        return {
            "picker": rng.uniform(1, 2, high=0.5),  # (E, 1, 2)
            "fruit": rng.uniform(self.max_fruit, 2),  # (E, max_fruit, 2)
            "ripe": torch.arange(self.max_fruit, device=rng.device) < count,  # (E, max_fruit)
            "count": count[:, 0],
            "wasp": rng.uniform(self.wasps, 2, low=0.6),  # far from the picker
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Move everybody; fruit in reach is picked and pays its share of 1."""
        picker = (state["picker"] + self.moves[action][:, None]).clamp(0, 1)
        wasp = (state["wasp"] + rng.uniform(self.wasps, 2, low=-0.08, high=0.08)).clamp(0, 1)
        picked = state["ripe"] & ((state["fruit"] - picker).norm(dim=2) < 0.06)
        stung = ((wasp - picker).norm(dim=2) < 0.06).any(1)
        ripe = state["ripe"] & ~picked
        following = {**state, "picker": picker, "wasp": wasp, "ripe": ripe}
        return following, picked.sum(1) / state["count"], stung | ~ripe.any(1), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show everything; a mask that is left out says that all slots are filled."""
        ripe = state["ripe"]
        fruit = state["fruit"] * ripe[:, :, None]  # absent rows: any value, 0 is tidy
        points = {"picker": state["picker"], "wasp": state["wasp"], "fruit": fruit}
        return {**points, "fruit_mask": ripe}

    def render_frame(self, state: State) -> Image.Image:
        """Draw one environment; only the pictures need this."""
        canvas = Canvas((0, 0, 1, 1))
        canvas.title("Harvest", f"{int(state['ripe'].sum())} of {int(state['count'])} left")
        kinds = ((state["fruit"][state["ripe"]], "red"), (state["wasp"], "yellow"))
        for points, colour in (*kinds, (state["picker"], "blue")):
            for x, y in points.tolist():
                canvas.circle((x, y), 0.025, fill=colour, outline="ink")
        return canvas.image()


register_task("Harvest-v0", Harvest)

if __name__ == "__main__":
    print(check_entity_env(Harvest(num_envs=8)))
