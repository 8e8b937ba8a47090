"""LockChain: open boxes whose locks match the key in hand, until one gives the gem."""

from __future__ import annotations

import colorsys
import math
from itertools import product
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from entity_encoder.envs.groups import Group, check_option
from entity_encoder.envs.rendering import Canvas
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.vector import EntityVectorEnv, State
from entity_encoder.spaces import SelectEntity

__all__ = ["LockChain"]

BITS = 8
CODES = 2**BITS
GEM = CODES  # content of the last box, in place of a code
NOTHING = CODES + 1  # lock and content of a slot without a box


class LockChain(EntityVectorEnv):
    """Find the chain of keys and locks that leads to the gem.

    ## Description
    The agent holds a key. Each box has a lock and holds another key or the gem. The box whose lock
    matches the key in hand opens; it and the key are used up, and what was in it is in the agent's
    hand. One chain of boxes leads to the gem. Branches leave it, each of which ends with a key
    that fits nowhere, so a matching box is not always the right one: the way must be planned from
    the gem backwards. Keys are codes that are drawn anew in each episode: which belong together
    can only be found by comparing boxes with each other, and nothing can be learned by heart.

    Box-World (Zambaldi et al., 2019, https://openreview.net/forum?id=HkxaFoC9KQ) as a set, without
    the walking.

    ## Action Space
    `SelectEntity("box", capacity)`: any box that is left, whether it can be opened or not.

    ## Observation Space
    | key | shape | columns |
    |---|---|---|
    | `agent` | (1, 8) | code of the key in hand: eight times -1 or 1 |
    | `box` | (capacity, 17) | code of the lock (8); code of its key (8), or 0 and 1 for the gem |
    | `agent_mask` | (1,) | 1 |
    | `box_mask` | (capacity,) | 1 where a box is left |

    ## Rewards
    1 for the gem, otherwise 0. `reference_policy`, which knows the chain, always returns 1, the
    optimum. Exact expectations for rules that know less: any box that is left / any box that
    matches the key: default options .232 / .501; chains of 3 with 3 branches .0042 / .167; chains
    of 6 with 3 branches .00001 / .146; chains of 3 with 8 branches .0004 / .026. Score 0 is any
    box that is left, 1 the optimum.

    ## Starting State
    The chain's length, the number of branches and the length of each branch are drawn uniformly
    from their ranges. A branch begins with a box that has the same lock as one of the chain, each
    being as likely. Codes are drawn uniformly without replacement: no two keys of an episode are
    equal, and the only boxes with equal locks are those where a branch leaves the chain.

    ## Episode End
    Termination: the gem is found, a box is picked that does not match, or no box matches the new
    key. No truncation unless `max_episode_steps` asks for it.

    ## Arguments
    - `max_chain` (3): longest chain, 1 to 64; may be larger at test time than in training, as may
      the other two. The capacity is `max_chain + max_branches * max_branch_length`, at most 256.
    - `min_chain` (1): shortest chain, 1 to `max_chain`.
    - `max_branches` (3): most branches, 0 to 64.
    - `min_branches` (0): fewest branches, 0 to `max_branches`.
    - `max_branch_length` (2): most boxes of a branch, 1 to 64.
    - `min_branch_length` (1): fewest boxes of a branch, 1 to `max_branch_length`.
    - Those of `EntityVectorEnv`.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_chain: int = 3,
        min_chain: int = 1,
        max_branches: int = 3,
        min_branches: int = 0,
        max_branch_length: int = 2,
        min_branch_length: int = 1,
        **options: Any,
    ) -> None:
        self.max_chain = check_option("max_chain", max_chain, 1, 64)
        self.min_chain = check_option("min_chain", min_chain, 1, max_chain)
        self.max_branches = check_option("max_branches", max_branches, 0, 64)
        self.min_branches = check_option("min_branches", min_branches, 0, max_branches)
        self.max_branch_length = check_option("max_branch_length", max_branch_length, 1, 64)
        self.min_branch_length = check_option(
            "min_branch_length", min_branch_length, 1, max_branch_length
        )
        self.capacity = max_chain + max_branches * max_branch_length
        if self.capacity > CODES:
            raise ValueError(
                "max_chain + max_branches * max_branch_length must be at most 256, the number of "
                f"codes, got {self.capacity}"
            )
        code = (-1.0, 1.0)
        box = {f"{part}_{bit}": code for part in ("lock", "key") for bit in range(BITS)}
        super().__init__(
            num_envs,
            groups=(
                Group("agent", 1, {f"key_{bit}": code for bit in range(BITS)}),
                Group(
                    "box",
                    self.capacity,
                    box | {"gem": (0.0, 1.0)},
                    state=("lock", "content", "solution"),
                ),
            ),
            action_space=SelectEntity("box", self.capacity),
            **options,
        )
        self.random_return = self._random_return()
        # Rows: the codes, the gem, nothing. Columns: code, 1 for the gem.
        codes = (torch.arange(CODES)[:, None] >> torch.arange(BITS) & 1) * 2.0 - 1.0
        contents = pad(codes, (0, 1, 0, 2))
        contents[GEM, BITS] = 1.0
        self._contents = contents.to(self.device)
        self._codes = self._contents[:, :BITS].contiguous()

    def _random_return(self) -> float:
        """Return how likely it is to open the chain's boxes in order by picking any box."""
        span = self.max_branch_length - self.min_branch_length + 1
        one = np.r_[np.zeros(self.min_branch_length), np.full(span, 1.0 / span)]
        extra = [np.ones(1)]  # extra[b][n]: probability that b branches have n boxes
        for _ in range(self.max_branches):
            extra.append(np.convolve(extra[-1], one))
        chains = range(self.min_chain, self.max_chain + 1)
        expected = [
            sum(share / math.perm(chain + n, chain) for n, share in enumerate(shares))
            for chain, shares in product(chains, extra[self.min_branches :])
        ]
        return float(np.mean(expected))

    def initial(self, rng: Rng) -> State:
        """Draw a chain, branches that leave it, and a code for every key."""
        chain, branches, most = self.max_chain, self.max_branches, self.max_branch_length
        length = rng.integers(chain + 1, 1, low=self.min_chain)
        count = rng.integers(branches + 1, 1, low=self.min_branches)
        branch_length = rng.integers(most + 1, branches, low=self.min_branch_length)
        start = rng.integers(length, branches)  # the box beside which a branch begins
        left = CODES - torch.arange(self.capacity, device=rng.device)
        code = _distinct(rng.integers(left, self.capacity))  # of the key that opens each box
        step = torch.arange(chain, device=rng.device)
        on_chain = step < length
        following = pad(code[:, 1:chain], (0, 1)).where(step < length - 1, GEM)
        # The keys in the boxes of branches, (E, branches, most), and those that open them.
        key = code[:, chain:].view(len(rng), branches, most)
        lock = torch.cat((code.gather(1, start)[:, :, None], key[:, :, :-1]), 2)
        step = torch.arange(most, device=rng.device)
        on_branch = step < branch_length[:, :, None]
        on_branch &= (torch.arange(branches, device=rng.device) < count)[:, :, None]
        present = torch.cat((on_chain, on_branch.flatten(1)), 1)
        return {
            "held": code[:, 0].clone(),
            "lock": torch.cat((code[:, :chain], lock.flatten(1)), 1).where(present, NOTHING),
            "content": torch.cat((following, key.flatten(1)), 1).where(present, NOTHING),
            "solution": pad(on_chain, (0, branches * most)),
        }

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Try a box; what is in it opens the next one, or nothing."""
        slot, held = action[:, None], state["held"][:, None]
        lock, content = (state[name].gather(1, slot) for name in ("lock", "content"))
        opens = lock == held
        held = content.where(opens, held)
        # No lock matches the gem, so finding it ends the episode as well.
        left = {
            "lock": state["lock"].scatter(1, slot, lock.masked_fill(opens, NOTHING)),
            "content": state["content"].scatter(1, slot, content.masked_fill(opens, NOTHING)),
        }
        goes_on = opens[:, 0] & (left["lock"] == held).any(1)
        held = held[:, 0]
        reward = (opens[:, 0] & (held == GEM)).float()
        return {**state, **left, "held": held}, reward, ~goes_on, None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show the key in hand, and the boxes that are left."""
        lock, content = state["lock"], state["content"]
        box = (torch.embedding(self._codes, lock), torch.embedding(self._contents, content))
        return {
            "agent": torch.embedding(self._codes, state["held"])[:, None],
            "box": torch.cat(box, 2),
            "box_mask": lock != NOTHING,
        }

    def optimum(self, state: State) -> Tensor:
        """Return the best return of the episodes that begin in `state`, (E,)."""
        return torch.ones_like(state["held"], dtype=torch.float32)

    def reference_policy(self, state: State) -> Tensor:
        """Open the chain's box; elsewhere one that matches; if there is none, any."""
        there = state["lock"] != NOTHING
        matches = state["lock"] == state["held"][:, None]
        return (there.long() + matches.long() + (matches & state["solution"]).long()).argmax(1)

    def render_frame(self, state: State) -> Image.Image:
        """Show the key in hand, and each box as a padlock that leads to a key or the gem."""
        columns = math.ceil((self.capacity / 2) ** 0.5)  # a box is twice as wide as high
        rows = -(-self.capacity // columns)
        canvas = Canvas((0, -rows, 2 * columns, 1.2))
        held = int(state["held"])
        lock, content = state["lock"].tolist(), state["content"].tolist()
        count = sum(code != NOTHING for code in lock)
        canvas.title("LockChain: open boxes until one gives the gem", f"{count} left")
        canvas.text((0.1, 0.55), "in hand", "grey", min(canvas.pixels(0.25), 18), "lm")
        canvas.mark("agent", 0, (1.5, 0.55))
        _draw_content(canvas, (1.5, 0.55), held)
        for slot, code in enumerate(lock):
            if code == NOTHING:
                continue
            x, y = 2 * (slot % columns) + 1, -(slot // columns) - 0.5
            outline, width = ("ink", 3.0) if code == held else ("light", 1.5)
            canvas.mark("box", slot, (x, y))
            low, high = (x - 0.93, y - 0.44), (x + 0.93, y + 0.44)
            canvas.rectangle(low, high, "white", outline, width, radius=0.12)
            _draw_lock(canvas, (x - 0.5, y), code)
            canvas.arrow((x - 0.12, y), (x + 0.08, y), "grey", 1.5)
            _draw_content(canvas, (x + 0.5, y), content[slot])
        return canvas.image()


def _distinct(rank: Tensor) -> Tensor:
    """Draw without replacement: the i-th item is the `rank`-th of those that are left.

    Args:
        rank: Number i uniform from 0 to CODES - 1 - i, (E, n).

    Returns:
        Different numbers from 0 to CODES - 1, every choice and order equally likely, (E, n).
    """
    rank = rank.t().contiguous()  # (n, E): arithmetic on whole rows is faster
    for i in range(len(rank) - 2, -1, -1):
        later = rank[i + 1 :]  # the ranks among all but the i-th item, so far
        later += later >= rank[i]
    return rank.t().contiguous()


def _tint(code: int) -> str:
    """Give each code a colour; neighbours in number are far apart in hue."""
    level = (0.42, 0.55, 0.68)[code % 3]
    red, green, blue = colorsys.hls_to_rgb(code * 0.618034 % 1.0, level, 0.7)
    return f"#{round(255 * red):02X}{round(255 * green):02X}{round(255 * blue):02X}"


def _draw_code(canvas: Canvas, centre: tuple[float, float], code: int) -> None:
    """Draw the eight bits as two rows of small squares."""
    for bit in range(BITS):
        x = centre[0] + 0.09 * (bit % 4 - 1.5)
        y = centre[1] - 0.09 * (bit // 4 - 0.5)
        colour = "white" if code >> bit & 1 else "ink"
        canvas.rectangle((x - 0.035, y - 0.035), (x + 0.035, y + 0.035), colour)


def _draw_lock(canvas: Canvas, centre: tuple[float, float], code: int) -> None:
    x, y = centre
    canvas.circle((x, y + 0.12), 0.16, None, "ink", canvas.pixels(0.05))
    canvas.rectangle((x - 0.25, y - 0.28), (x + 0.25, y + 0.1), _tint(code), radius=0.05)
    _draw_code(canvas, (x, y - 0.09), code)


def _draw_content(canvas: Canvas, centre: tuple[float, float], content: int) -> None:
    """Draw a key, or the gem."""
    x, y = centre
    if content == GEM:
        corners = ((-0.2, 0.16), (0.2, 0.16), (0.32, 0.02), (0.0, -0.32), (-0.32, 0.02))
        canvas.polygon([(x + dx, y + dy) for dx, dy in corners], "yellow", "ink")
        canvas.line([(x - 0.32, y + 0.02), (x + 0.32, y + 0.02)], "ink")
        return
    colour = _tint(content)
    canvas.line(((x, y), (x + 0.34, y)), colour, canvas.pixels(0.08))
    for tooth in (0.22, 0.31):
        canvas.line(((x + tooth, y), (x + tooth, y - 0.15)), colour, canvas.pixels(0.06))
    canvas.circle((x - 0.12, y), 0.25, colour)
    _draw_code(canvas, (x - 0.12, y), content)
