"""Triage: which job first, when not all can be done in time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas, blend
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import SelectEntity

__all__ = ["Triage", "best_schedule"]

LIGHTEST = 0.05


class Triage(EntityVectorEnv):
    """Do as much valuable work as deadlines allow, one job a step.

    ## Description
    Jobs have a weight and a deadline. One job is done each step and pays its weight; a job whose
    deadline has passed leaves the set. There is time for about half of them. Rules of thumb come
    close, the optimum needs a comparison of all jobs.

    ## Action Space
    `SelectEntity("job", max_jobs)`: the slot of a job that is still there.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `job` | (max_jobs, 2) | weight; slack, the number of steps in which it can still be done |
    | `job_mask` | (max_jobs,) | 1 where a job is left |

    ## Rewards
    The job's weight, divided by the best total of the episode: the optimum is exactly 1.
    `reference_policy` reaches it (it knows an optimal schedule, the greedy solution of the
    scheduling matroid, and does its jobs by deadline). Measured over 4,000 episodes, 4-8 jobs /
    64 jobs: random .71 / .62, heaviest first .90 / .80, most urgent first (of those the heaviest)
    .95 / .88, weight per slack .98 / .95. Score 0 is random, 1 the optimum.

    ## Starting State
    The number of jobs n is drawn uniformly from `min_jobs` to `max_jobs`, weights uniformly from
    .05 to 1, deadlines uniformly from 1 to n / 2 (rounded up).

    ## Episode End
    Termination: no job is left. No truncation unless `max_episode_steps` asks for it.

    ## Arguments
    - `max_jobs` (8): capacity, 2 to 1024; may be larger at test time than in training.
    - `min_jobs` (half of `max_jobs`): 2 to `max_jobs`.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_jobs: int = 8,
        min_jobs: int | None = None,
        **options: Any,
    ) -> None:
        self.max_jobs = check_option("max_jobs", max_jobs, 2, 1024)
        fewest = max(2, max_jobs // 2) if min_jobs is None else min_jobs
        self.min_jobs = check_option("min_jobs", fewest, 2, max_jobs)
        self.latest = math.ceil(max_jobs / 2)
        columns = {"weight": (0.0, 1.0), "slack": (0.0, float(self.latest))}
        super().__init__(
            num_envs,
            groups=(Group("job", max_jobs, columns, state=("weight", "deadline", "left", "best")),),
            action_space=SelectEntity("job", max_jobs),
            **options,
        )
        # Measured for 2, 4, 8, 16, 32, 64 and 128 jobs; the mean over the range of counts.
        counts = np.log2(np.arange(self.min_jobs, max_jobs + 1))
        measured = (0.771, 0.719, 0.685, 0.651, 0.628, 0.617, 0.609)
        self.random_return = float(np.interp(counts, range(1, 8), measured).mean())

    def initial(self, rng: Rng) -> State:
        """Draw the jobs and find out the best schedule."""
        n = self.max_jobs
        count = rng.integers(n + 1, 1, low=self.min_jobs)
        left = torch.arange(n, device=rng.device) < count
        weight = rng.uniform(n, low=LIGHTEST, high=1.0) * left
        deadline = rng.integers((count + 1) // 2 + 1, n, low=1)
        best = best_schedule(weight, deadline, self.latest) & left
        total = (weight.double() * best).sum(1).float()
        return {"weight": weight, "deadline": deadline, "left": left, "best": best, "total": total}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Do a job; then drop those for which it is too late."""
        slot = action[:, None]
        reward = state["weight"].gather(1, slot)[:, 0] / state["total"]
        now = state["elapsed"][:, None] + 1
        left = state["left"].scatter(1, slot, False) & (state["deadline"] > now)
        return {**state, "left": left}, reward, ~left.any(1), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the jobs that are left."""
        slack = state["deadline"] - state["elapsed"][:, None]
        job = torch.stack((state["weight"], slack.float()), 2)
        return {"job": job * state["left"][:, :, None], "job_mask": state["left"]}

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["total"])

    def reference_policy(self, state: State) -> Tensor:
        """Do the jobs of the best schedule by deadline, then the others."""
        wanted = state["left"] & state["best"]
        rank = state["deadline"] + ~wanted * 10_000 + ~state["left"] * 100_000
        return rank.argmin(1)

    def render_frame(self, state: State) -> Image.Image:
        """Show each job as a bar, as wide as its weight, at the step of its deadline."""
        now, latest = int(state["elapsed"]), self.latest
        canvas = Canvas((-0.4, -latest - 0.5, 4.4, 0.6))
        left = state["left"].tolist()
        canvas.title("Triage: do the most valuable jobs in time", f"step {now}, {sum(left)} left")
        canvas.text((0, 0.3), "jobs by deadline; width is weight", "grey", 13, "lm")
        rows: list[list[tuple[float, int]]] = [[] for _ in range(latest + 1)]
        for slot, there in enumerate(left):
            if there:
                rows[int(state["deadline"][slot])].append((float(state["weight"][slot]), slot))
        for step, jobs in enumerate(rows[1:], start=1):
            y = -step + 0.5
            size = min(canvas.pixels(0.34), 14)
            canvas.text((-0.1, y), str(step), "red" if step == now + 1 else "grey", size, "rm")
            canvas.line(((0, y - 0.5), (4.3, y - 0.5)), "light", 1)
            total = sum(weight for weight, _ in jobs)
            x, scale = 0.05, min(1.0, 4.2 / max(total + 0.06 * len(jobs), 0.01))
            for weight, slot in sorted(jobs, reverse=True):
                end = x + weight * scale
                canvas.mark("job", slot, ((x + end) / 2, y))
                colour = blend("light", "blue", weight)
                canvas.rectangle((x, y - 0.36), (end, y + 0.36), colour, radius=0.04)
                x = end + 0.06 * scale
        return canvas.image()


def best_schedule(weight: Tensor, deadline: Tensor, latest: int) -> Tensor:
    """Choose the jobs of greatest total weight of which each can meet its deadline.

    Sets of jobs that can all be done in time are the independent sets of a matroid, so taking the
    heaviest job that still fits, again and again, is optimal (Gabow and Tarjan, 1984).

    Args:
        weight: Weights, (E, n).
        deadline: Steps after which a job is worth nothing, from 1 to `latest`, (E, n).
        latest: The last possible deadline.

    Returns:
        Mask of the chosen jobs, (E, n).
    """
    order = weight.argsort(dim=1, descending=True, stable=True)
    step = torch.arange(1, latest + 1, device=weight.device)
    until = deadline.gather(1, order)[:, :, None] <= step  # (E, n, latest): due by this step
    due = torch.zeros_like(until[:, 0], dtype=torch.int64)  # chosen jobs that are due by each step
    chosen = torch.zeros_like(until[:, :, 0])
    for rank in range(weight.shape[1]):
        more = due + until[:, rank]
        fits = (more <= step).all(1)
        due = torch.where(fits[:, None], more, due)
        chosen[:, rank] = fits
    return torch.zeros_like(chosen).scatter(1, order, chosen)
