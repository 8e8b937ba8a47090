"""CherryPick: take the best half of a set."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas, blend
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import SelectEntity

__all__ = ["CherryPick"]


class CherryPick(EntityVectorEnv):
    """Pick the best half of a set of cherries.

    ## Description
    Cherries differ in quality only. Each step one of them is picked, its quality is gained, and it
    is gone from the set. The number of picks is half the number of cherries.

    ## Action Space
    `SelectEntity("cherry", max_cherries)`: the slot of a cherry that is still there.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `cherry` | (max_cherries, 1) | quality |
    | `cherry_mask` | (max_cherries,) | 1 where a cherry is left |

    ## Rewards
    The quality of the picked cherry. Qualities are shifted so that the best half sums to 1, hence
    the optimum, which `reference_policy` reaches, is exactly 1 in every episode. Random picks
    return about 1 - 0.39 * max_cherries (32 cherries, 4,000 episodes: -11.5). Because of that
    range, report the score: 0 is random, 1 the optimum.

    ## Starting State
    `max_cherries` qualities from a standard normal distribution, then shifted.

    ## Episode End
    Termination: after `max_cherries // 2` picks. There is no truncation unless
    `max_episode_steps` asks for it.

    ## Arguments
    - `max_cherries` (32): 2 to 1024; may be larger at test time than in training.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(self, num_envs: int = 1, *, max_cherries: int = 32, **options: Any) -> None:
        self.max_cherries = check_option("max_cherries", max_cherries, 2, 1024)
        self.picks = self.max_cherries // 2
        super().__init__(
            num_envs,
            groups=(
                Group(
                    "cherry",
                    max_cherries,
                    {"quality": (-20.0, 20.0)},
                    state=("quality", "present"),
                ),
            ),
            action_space=SelectEntity("cherry", max_cherries),
            **options,
        )
        # A random pick is worth (1 - best) / picks, where `best` is the sum of the best half
        # before the shift; its mean by Blom's (1958) approximation of normal order statistics.
        normal, n = NormalDist(), self.max_cherries
        ranks = range(n - self.picks + 1, n + 1)
        self.random_return = 1.0 - sum(normal.inv_cdf((r - 0.375) / (n + 0.25)) for r in ranks)

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["quality"][:, 0])

    def initial(self, rng: Rng) -> State:
        """Draw qualities and shift them so that the best `picks` sum to 1."""
        quality = rng.normal(self.max_cherries).double()
        best = quality.topk(self.picks, dim=1).values.sum(1, keepdim=True)
        quality = (quality + (1.0 - best) / self.picks).float()
        return {"quality": quality, "present": torch.ones_like(quality, dtype=torch.bool)}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Take one cherry and gain its quality."""
        slot = action[:, None]
        reward = state["quality"].gather(1, slot)[:, 0]
        present = state["present"].scatter(1, slot, False)
        return {**state, "present": present}, reward, state["elapsed"] + 1 >= self.picks, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the cherries that are left."""
        quality = state["quality"] * state["present"]
        return {"cherry": quality[:, :, None], "cherry_mask": state["present"]}

    def reference_policy(self, state: State) -> Tensor:
        """Take the best cherry that is left, which is optimal."""
        return state["quality"].masked_fill(~state["present"], -torch.inf).argmax(1)

    def render_frame(self, state: State) -> Image.Image:
        """Show every cherry with its quality, the better the redder; picked ones leave a ring."""
        columns = max(1, round(self.max_cherries**0.5))
        rows = -(-self.max_cherries // columns)
        canvas = Canvas((0, -rows, columns, 0))
        picked = ~state["present"]
        gained = float(state["quality"][picked].sum())
        canvas.title(
            f"CherryPick: pick the best {self.picks}",
            f"{int(picked.sum())} picked, sum {gained:+.2f} of 1",
        )
        for slot, quality in enumerate(state["quality"].tolist()):
            x, y = slot % columns + 0.5, -(slot // columns) - 0.5
            if picked[slot]:
                canvas.circle((x, y - 0.06), 0.26, outline="light")
                continue
            canvas.mark("cherry", slot, (x, y - 0.06))
            share = min(max(quality / 3 + 0.55, 0.0), 1.0)  # 0: worst, green; 1: best, red
            colour = blend("#BECD96", "#C41E3A", share)
            canvas.line(((x, y + 0.15), (x + 0.1, y + 0.4)), "green", 2)
            canvas.circle((x, y - 0.06), 0.3, fill=colour)
            size = canvas.pixels(0.24)
            canvas.text((x, y - 0.06), f"{quality:+.1f}", "white" if share > 0.5 else "ink", size)
        return canvas.image()
