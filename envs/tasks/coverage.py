"""Coverage: agents spread so that every landmark has one nearby."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Global, Group, check_option
from entity_encoder.envs.rendering import Canvas, blend
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.tasks.matching import best_matching, greedy_matching
from entity_encoder.envs.tasks.paths import STEPS
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import PerEntity

__all__ = ["Coverage"]

STRIDE = 0.1
APART = 1e3  # cost of a pair of which one is absent: more than all distances together
# Mean returns over 4,000 episodes with 1, 2, 4, ..., 128 agents.
RANDOM = (-26.3, -19.8, -14.1, -9.86, -6.83, -4.77, -3.31, -2.33)
REFERENCE = (-8.25, -5.78, -3.74, -2.43, -1.66, -1.27, -1.06, -0.93)


class Coverage(EntityVectorEnv):
    """Spread agents so that every landmark has one nearby.

    ## Description
    As many agents as landmarks stand in a square. All agents move at once, and one policy moves
    them all. Each landmark counts its distance to the nearest agent, so two agents at one landmark
    leave another alone: who goes where is decided by all of them together.

    ## Action Space
    `PerEntity("agent", max_agents, 5)`: each agent stays (0) or moves .1 up, right, down or left
    (1 to 4; y points up). The border stops it.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `agent` | (max_agents, 2) | x, y from -1 to 1 |
    | `landmark` | (max_agents, 2) | x, y |
    | `<group>_mask` | (max_agents,) | 1 where there is one |
    | `step` | (1,) | share of the time that is used up |

    ## Rewards
    In each step minus the distance from a landmark to its nearest agent, mean over the landmarks.
    Mean returns measured over 4,000 episodes (1,000 with 32) for 3 / 8 / 32 agents: random moves
    -16.2 / -9.9 / -4.8, each to its nearest landmark -8.8 / -5.8 / -2.9, greedy matching -5.0 /
    -2.9 / -1.45, `reference_policy`, which matches agents and landmarks at the least total
    distance, -4.5 / -2.4 / -1.27. With 16 agents, each to its nearest landmark returns -4.1 (1,000
    episodes). Score 0 is random, 1 the reference.

    ## Starting State
    The number of agents, which is that of landmarks, is drawn uniformly from `min_agents` to
    `max_agents`, all places uniformly from the square.

    ## Episode End
    Termination: never. Truncation: after `max_episode_steps` steps.

    ## Arguments
    - `max_agents` (4): capacity of both groups, 1 to 128; may be larger at test time than in
      training.
    - `min_agents` (half of `max_agents`): 1 to `max_agents`.
    - `max_episode_steps` (25).
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_agents: int = 4,
        min_agents: int | None = None,
        max_episode_steps: int = 25,
        **options: Any,
    ) -> None:
        self.max_agents = check_option("max_agents", max_agents, 1, 128)
        fewest = (max_agents + 1) // 2 if min_agents is None else min_agents
        self.min_agents = check_option("min_agents", fewest, 1, max_agents)
        columns, xy = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, ("x", "y")
        super().__init__(
            num_envs,
            groups=tuple(
                Group(name, max_agents, columns, positions=xy, state=(name, f"{name}_present"))
                for name in ("agent", "landmark")
            ),
            global_features=(Global("step"),),
            action_space=PerEntity("agent", max_agents, 1 + len(STEPS)),
            max_episode_steps=max_episode_steps,
            **options,
        )
        self.time_limit = max_episode_steps
        counts = np.log2(np.arange(self.min_agents, max_agents + 1))
        share = max_episode_steps / 25
        self.random_return = share * float(np.interp(counts, range(8), RANDOM).mean())
        self.reference_return = share * float(np.interp(counts, range(8), REFERENCE).mean())
        self._moves = torch.tensor(((0, 0), *STEPS)).to(self.device) * STRIDE

    def initial(self, rng: Rng) -> State:
        """Draw how many there are, and where."""
        n = self.max_agents
        count = rng.integers(n + 1, 1, low=self.min_agents)
        present = torch.arange(n, device=rng.device) < count
        places = rng.uniform(2, n, 2, low=-1.0, high=1.0) * present[:, None, :, None]
        return {
            "agent": places[:, 0],
            "agent_present": present,
            "landmark": places[:, 1],
            "landmark_present": present.clone(),
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Move all agents, then measure."""
        agent = (state["agent"] + self._moves[action]).clamp(-1.0, 1.0)
        state = {**state, "agent": agent}
        there = state["landmark_present"]
        apart = _distances(state).masked_fill(~state["agent_present"][:, :, None], torch.inf)
        nearest = torch.where(there, apart.amin(1), 0.0)  # (E, landmarks)
        return state, -nearest.sum(1) / there.sum(1), torch.zeros_like(there[:, 0]), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show where agents and landmarks are."""
        return {
            "agent": state["agent"],
            "agent_mask": state["agent_present"],
            "landmark": state["landmark"],
            "landmark_mask": state["landmark_present"],
            "step": (state["elapsed"] / self.time_limit)[:, None],
        }

    def reference_policy(
        self, state: State, rule: Literal["best", "greedy", "nearest"] = "best"
    ) -> Tensor:
        """Send each agent to a landmark, matched anew in each step.

        Args:
            state: State of the environments.
            rule: "best" matches at the least total distance, "greedy" pairs the nearest again
                and again, "nearest" lets each agent choose for itself.
        """
        here, there = state["agent_present"], state["landmark_present"]
        cost = _distances(state).masked_fill(here[:, :, None] != there[:, None, :], APART)
        if rule == "nearest":
            goal = cost.argmin(2)
        else:
            goal = (best_matching if rule == "best" else greedy_matching)(cost)
        way = state["landmark"].gather(1, goal[:, :, None].expand(-1, -1, 2)) - state["agent"]
        x, y = way.unbind(2)
        sideways = x.abs() > y.abs()
        action = torch.where(sideways, torch.where(x > 0, 2, 4), torch.where(y > 0, 1, 3))
        arrived = torch.where(sideways, x, y).abs() <= STRIDE / 2
        return action.masked_fill(arrived | ~here, 0)

    def render_frame(self, state: State) -> Image.Image:
        """Show landmarks as rings, red when far from any agent, and agents as discs."""
        canvas = Canvas((-1.1, -1.1, 1.1, 1.1))
        for name in ("agent", "landmark"):
            for slot in state[f"{name}_present"].nonzero().flatten().tolist():
                canvas.mark(name, slot, tuple(state[name][slot].tolist()))
        agents = state["agent"][state["agent_present"]]
        landmarks = state["landmark"][state["landmark_present"]]
        apart, nearest = torch.cdist(landmarks, agents).min(1)
        mean = f"mean distance {float(apart.mean()):.2f}"
        canvas.title("Coverage: an agent to every ring", f"{mean}, step {int(state['elapsed'])}")
        canvas.rectangle((-1.0, -1.0), (1.0, 1.0), fill="#F1EDE0", outline="grey")
        size = max(0.025, 0.06 - 0.001 * len(agents))
        rings = list(zip(landmarks.tolist(), nearest.tolist(), apart.tolist(), strict=True))
        for (x, y), agent, _ in rings:
            canvas.line(((x, y), tuple(agents[agent].tolist())), "#C9C2AE", 1.5)
        for (x, y), _, far in rings:
            colour = blend("green", "red", far / 0.5)
            canvas.circle((x, y), 1.5 * size, fill=blend(colour, "white", 0.75), outline=colour)
        for x, y in agents.tolist():
            canvas.circle((x, y), size, fill="blue", outline="white", width=1)
        return canvas.image()


def _distances(state: State) -> Tensor:
    """Return the distance of each agent from each landmark, (E, agents, landmarks)."""
    between = state["agent"][:, :, None] - state["landmark"][:, None]
    return between.square().sum(3).sqrt()
