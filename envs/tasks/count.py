"""Count: say how many there are."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State

__all__ = ["Count"]


class Count(EntityVectorEnv):
    """Say how many beans there are.

    ## Description
    Beans have no features: only their number matters. A player, without features as well, makes
    sure that the set is never empty. Some wrong answers can be masked off at random.

    ## Action Space
    `Discrete(max_beans + 1)`: the number. `action_mask` leaves `choices` answers open.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `player` | (1, 0) | none |
    | `bean` | (max_beans, 0) | none |
    | `<group>_mask` | (slots,) | 1 where there is one |
    | `action_mask` | (max_beans + 1,) | 1 where the answer is open |

    ## Rewards
    1 for the right number, otherwise 0. Random answers return 1 / `choices`, by default .1
    (100,000 episodes: .100); the optimum, which `reference_policy` reaches, is 1. Score 0 is
    random, 1 the optimum.

    ## Starting State
    The number of beans is drawn uniformly from 0 to `max_beans`; the wrong answers that stay open
    are drawn without replacement.

    ## Episode End
    Termination: after the first answer.

    ## Arguments
    - `max_beans` (9): 1 to 1024. The number of actions grows with it.
    - `choices` (all): open answers, 2 to `max_beans + 1`.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_beans: int = 9,
        choices: int | None = None,
        **options: Any,
    ) -> None:
        self.max_beans = check_option("max_beans", max_beans, 1, 1024)
        answers = max_beans + 1
        self.choices = check_option("choices", answers if choices is None else choices, 2, answers)
        super().__init__(
            num_envs,
            groups=(Group("player", 1), Group("bean", max_beans, state=("present",))),
            action_space=spaces.Discrete(answers),
            action_mask=True,
            **options,
        )
        self.random_return = 1.0 / self.choices

    def initial(self, rng: Rng) -> State:
        """Draw the number of beans and which answers are open."""
        answers = self.max_beans + 1
        count = rng.integers(answers, 1)  # (E, 1)
        # The right answer gets the first place in a random order of all answers.
        rank = rng.permutation(answers).argsort(1)
        rank = rank.scatter(1, count, -1)
        open_answers = rank.argsort(1).argsort(1) < self.choices
        present = torch.arange(self.max_beans, device=rng.device) < count
        return {"count": count[:, 0], "present": present, "open": open_answers}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Judge the answer."""
        right = action == state["count"]
        return {**state}, right.float(), torch.ones_like(right), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the beans and the open answers."""
        rows, device = len(state["count"]), state["count"].device
        return {
            "player": torch.zeros(rows, 1, 0, device=device),
            "bean": torch.zeros(rows, self.max_beans, 0, device=device),
            "bean_mask": state["present"],
            "action_mask": state["open"],
        }

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["count"], dtype=torch.float32)

    def reference_policy(self, state: State) -> Tensor:
        """Give the right answer."""
        return state["count"]

    def render_frame(self, state: State) -> Image.Image:
        """Show the beans on a plate, and the open answers below."""
        columns = max(1, -(-int(self.max_beans**0.5 * 1000) // 1000))
        rows = -(-self.max_beans // columns)
        canvas = Canvas((-0.6, -rows - 1.6, columns + 0.6, 0.4))
        canvas.title("Count: how many beans?", f"answer: {int(state['count'])}")
        canvas.rectangle((-0.3, -rows - 0.2), (columns + 0.3, 0.2), "white", "light", 2, radius=0.4)
        for slot in state["present"].nonzero().flatten().tolist():
            x, y = slot % columns + 0.5, -(slot // columns) - 0.5
            canvas.mark("bean", slot, (x, y))
            canvas.circle((x - 0.12, y + 0.06), 0.22, fill="red")
            canvas.circle((x + 0.12, y - 0.06), 0.22, fill="red")
            canvas.circle((x - 0.14, y + 0.14), 0.06, fill="#F3C9B0")
        numbers = state["open"].nonzero().flatten().tolist()
        shown = " ".join(map(str, numbers)) if len(numbers) < 16 else f"{len(numbers)} answers"
        canvas.text((columns / 2, -rows - 0.9), f"open: {shown}", "grey", 15)
        return canvas.image()
