"""RockPaperScissors: what only the critic may see."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State

__all__ = ["RockPaperScissors"]

NAMES = ("rock", "paper", "scissors")


class RockPaperScissors(EntityVectorEnv):
    """Play against an opponent whose choice only the critic may see.

    ## Description
    A proof that visibility is asymmetric: the group `opponent` is marked `critic_only` in
    `entity_schema`. A value function that reads it predicts the outcome; a policy that reads it
    always wins, and so is found out.

    ## Action Space
    `Discrete(3)`: 0 rock, 1 paper, 2 scissors.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `player` | (1, 0) | none |
    | `opponent` | (1, 3) | its choice (one-hot); for the critic only, unless `cheat` |
    | `<group>_mask` | (1,) | 1 |

    ## Rewards
    2 for winning, 1 for a draw, 0 for losing. A fair policy returns 1 on average, whatever it
    does (100,000 episodes of random choices: 1.00); `reference_policy` cheats and returns 2. Score
    0 is fair play, 1 cheating: without `cheat`, a score above 0 beyond chance shows a leak.

    ## Starting State
    The opponent's choice is drawn uniformly.

    ## Episode End
    Termination: after the first choice.

    ## Arguments
    - `cheat` (False): whether the policy may see the opponent's choice.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    random_return = 1.0
    reference_return = 2.0

    def __init__(self, num_envs: int = 1, *, cheat: bool = False, **options: Any) -> None:
        columns = dict.fromkeys(NAMES, (0.0, 1.0))
        super().__init__(
            num_envs,
            groups=(Group("player", 1), Group("opponent", 1, columns, critic_only=not cheat)),
            action_space=spaces.Discrete(3),
            **options,
        )

    def initial(self, rng: Rng) -> State:
        """Draw the opponent's choice."""
        opponent = rng.integers(3, 1)[:, 0]
        return {"opponent": opponent, "choice": torch.full_like(opponent, -1)}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Compare the choices: each beats the one before it."""
        reward = (action - state["opponent"] + 1) % 3  # same: 1; next: 2, wins; before: 0
        return {**state, "choice": action}, reward.float(), torch.ones_like(reward) > 0, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the opponent's choice; the schema says to whom."""
        one_hot = torch.nn.functional.one_hot(state["opponent"], 3).float()
        rows = len(one_hot)
        return {
            "player": torch.zeros(rows, 1, 0, device=one_hot.device),
            "opponent": one_hot[:, None],
        }

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,), with cheating."""
        return torch.full_like(state["opponent"], 2, dtype=torch.float32)

    def reference_policy(self, state: State) -> Tensor:
        """Cheat: choose what beats the opponent's choice."""
        return (state["opponent"] + 1) % 3

    def render_frame(self, state: State) -> Image.Image:
        """Show both choices; the player's once it is made."""
        canvas = Canvas((-2, -1.6, 2, 1.6))
        opponent, choice = int(state["opponent"]), int(state["choice"])
        result = "" if choice < 0 else ("lost", "draw", "won")[(choice - opponent + 1) % 3]
        canvas.title("RockPaperScissors: only the critic sees the opponent", result)
        canvas.text((-1, 1.2), "player", "grey", 16)
        canvas.text((1, 1.2), "opponent", "grey", 16)
        for x, hand in ((-1.0, choice), (1.0, opponent)):
            canvas.circle((x, 0), 0.9, "white", "light", 3)
            _draw_hand(canvas, x, hand)
            canvas.text((x, -1.2), NAMES[hand] if hand >= 0 else "?", size=18)
        return canvas.image()


def _draw_hand(canvas: Canvas, x: float, hand: int) -> None:
    if hand == 0:
        canvas.circle((x, 0), 0.45, "grey", "ink", 2)
        canvas.circle((x - 0.12, 0.14), 0.1, "light")
    elif hand == 1:
        canvas.rectangle((x - 0.35, -0.45), (x + 0.35, 0.45), "paper", "ink", 2)
        for y in (-0.2, 0.0, 0.2):
            canvas.line(((x - 0.22, y), (x + 0.22, y)), "grey", 2)
    elif hand == 2:
        canvas.line(((x - 0.3, 0.5), (x + 0.2, -0.3)), "ink", 4)
        canvas.line(((x + 0.3, 0.5), (x - 0.2, -0.3)), "ink", 4)
        for side in (-1, 1):
            canvas.circle((x + side * 0.25, -0.4), 0.16, outline="red", width=4)
