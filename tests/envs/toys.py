"""Small vectorised environments whose every number can be worked out by hand."""

from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Global, Group
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import PerEntity, SelectEntity


class Countdown(EntityVectorEnv):
    """Episodes of `lengths[row of the batch]` steps; reward = number of the step; no chance."""

    reference_return = 6.0

    def __init__(self, num_envs: int = 3, *, lengths: tuple[int, ...] = (3, 2, 1), **options: Any):
        super().__init__(
            num_envs,
            groups=(Group("item", 4, {"count": (0.0, 99.0)}),),
            action_space=spaces.Discrete(2),
            **options,
        )
        self._lengths = torch.tensor(lengths)

    def initial(self, rng: Rng) -> State:
        # Keys are in the order of the environments only if all are reset: look the row up.
        row = (rng._key[:, None] == self._streams.key).int().argmax(1)
        return {"length": self._lengths[row]}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        count = state["elapsed"] + 1
        return {**state}, count.float(), count >= state["length"], None

    def observe(self, state: State) -> dict[str, Tensor]:
        mask = torch.arange(4) < state["elapsed"][:, None] + 1
        return {"item": (mask * state["elapsed"][:, None])[:, :, None].float(), "item_mask": mask}

    def reference_policy(self, state: State) -> Tensor:
        return torch.zeros_like(state["length"])


class Lottery(EntityVectorEnv):
    """Chance everywhere: the first state, the transitions, the episode's end.

    Each step one of seven balls is taken and gives its number plus noise; balls vanish at random.
    """

    def __init__(
        self, num_envs: int = 5, *, per_entity: bool = False, ending: float = 0.2, **options: Any
    ):
        self.per_entity = per_entity
        self.ending = ending
        action: spaces.Space[Any] = SelectEntity("ball", 7)
        if per_entity:
            action = PerEntity("ball", 7, 3)
        super().__init__(
            num_envs,
            groups=(
                Group("ball", 7, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, state=("xy", "there", "id")),
                Group("nothing", 2),
            ),
            global_features=(Global("noise", 3, -9.0, 9.0),),
            action_space=action,
            **options,
        )

    def initial(self, rng: Rng) -> State:
        there = torch.arange(7, device=rng.device) < rng.integers(8, 1, low=1)
        return {
            "xy": rng.uniform(7, 2) * there[:, :, None],
            "there": there,
            "id": torch.arange(7, device=rng.device).expand(len(rng), 7).clone(),
            "noise": rng.normal(3),
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        draw = rng.uniform(9)
        noise = state["noise"] * 0.5 + draw[:, :3] * state["there"].sum(1, keepdim=True)
        if self.per_entity:
            reward = (action * state["there"]).sum(1).float() + draw[:, 3]
            slot = draw[:, 4:].argmax(1)[:, None]
        else:
            slot = action[:, None]
            reward = state["id"].gather(1, slot)[:, 0] + draw[:, 3]
        there = state["there"].scatter(1, slot, False)
        state = {**state, "there": there, "noise": noise, "xy": state["xy"] * there[:, :, None]}
        ended = ~there.any(1) | (draw[:, 8] < self.ending)
        return state, reward, ended, None

    def observe(self, state: State) -> dict[str, Tensor]:
        rows = len(state["there"])
        return {
            "ball": state["xy"],  # the state's own tensor: the base class must copy it
            "ball_mask": state["there"],
            "nothing": torch.zeros(rows, 2, 0, device=state["xy"].device),
            "nothing_mask": state["there"][:, :2],
            "noise": state["noise"],
        }

    def reference_policy(self, state: State) -> Tensor:
        return (state["there"].long() * (state["id"] + 1)).argmax(1)

    def render_frame(self, state: State) -> Image.Image:
        return Image.new("RGB", (6, 4), (int(state["there"].sum()), 0, 0))
