"""MPE2's particle worlds: simple_spread and simple_tag, one policy for all agents.

    pip install "entity-encoder[envs]"
    entity-encoder train Bridge/simple_spread-v3 --total-steps 300000

Mean return per agent of simple_spread (25 steps), for N = 3 and 6: random -26.8 and -36.5, every
agent to its nearest landmark -18.0 and -24.0, agents matched to landmarks -7.9 and -12.0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.bridges.layout import Block, Layout
from entity_encoder.envs.bridges.packages import require
from entity_encoder.envs.bridges.parallel import ParallelVectorEnv
from entity_encoder.schema import EntitySchema

__all__ = ["SpreadView", "TagView", "make_spread", "make_tag"]

PACKAGE = "mpe2"
KNOWN_VERSIONS = ("1.1.1",)
SELF = ("vx", "vy", "x", "y")  # velocity first
POINT = ("x", "y")
SPEECH = ("say_0", "say_1")


class SpreadView:
    """What an agent of simple_spread sees: itself, landmarks, other agents.

    | group | columns |
    |---|---|
    | `self` (1) | `vx, vy, x, y`, absolute |
    | `landmark` | `x, y`, relative to the agent |
    | `agent` | `x, y`, relative, and `say_0, say_1`, what it communicates |

    Args:
        n: Agents, and landmarks.
        agents_seen: `num_agent_neighbors`: the environment shows so many nearest agents, and pads
            with zeros when there are fewer; the mask knows how many there are.
        landmarks_seen: `num_landmark_neighbors`, likewise.
    """

    def __init__(
        self, n: int = 3, *, agents_seen: int | None = None, landmarks_seen: int | None = None
    ) -> None:
        others = n - 1 if agents_seen is None else agents_seen
        landmarks = n if landmarks_seen is None else landmarks_seen
        start = 4 + 2 * landmarks
        relative: dict[str, Any] = {"features": POINT, "positions": POINT}
        self.layout = Layout(
            [
                Block("self", 0, features=SELF, directions=SELF[:2]),
                Block("landmark", 4, landmarks, presence=f"first {min(n, landmarks)}", **relative),
                Block("agent", start, others, presence=f"first {min(n - 1, others)}", **relative),
                Block("agent", start + 2 * others, others, features=SPEECH),
            ],
            package=PACKAGE,
            known=KNOWN_VERSIONS,
        )
        self.entity_schema = self.layout.schema()
        self.observation_space = self.entity_schema.space()

    def observe(self, agent: str, observation: np.ndarray) -> dict[str, np.ndarray]:
        """Cut an agent's observation into entities."""
        return self.layout.split(observation)


class TagView:
    """What an agent of simple_tag sees, adversary or prey, in one form for both.

    | group | columns |
    |---|---|
    | `self` (1) | `vx, vy, x, y`, absolute, and `is_adversary` |
    | `landmark` | `x, y`, relative to the agent |
    | `adversary` | `x, y`, relative |
    | `prey` | `x, y`, relative, and `vx, vy`, absolute |

    With a limit of neighbours the environment no longer says who is adversary and who is prey:
    the two become one group `agent` with `x, y, vx, vy`.

    Args:
        prey: `num_good`.
        adversaries: `num_adversaries`.
        obstacles: `num_obstacles`.
        agents_seen: `num_agent_neighbors`.
        landmarks_seen: `num_landmark_neighbors`.
    """

    def __init__(
        self,
        prey: int = 1,
        adversaries: int = 3,
        obstacles: int = 2,
        *,
        agents_seen: int | None = None,
        landmarks_seen: int | None = None,
    ) -> None:
        landmarks = obstacles if landmarks_seen is None else landmarks_seen
        counts = {"adversaries": adversaries, "prey": prey}
        self._layouts: dict[bool, Layout] = {}
        for is_adversary in (True, False):
            blocks = [
                Block("self", 0, features=SELF, directions=SELF[:2]),
                _relative("landmark", 4, landmarks, min(obstacles, landmarks)),
            ]
            start = 4 + 2 * landmarks
            if agents_seen is None:
                seen = counts["adversaries"] - is_adversary
                chased = counts["prey"] - (not is_adversary)
                blocks += [
                    _relative("adversary", start, seen, seen),
                    _relative("prey", start + 2 * seen, chased, chased),
                    _velocity("prey", start + 2 * (seen + chased), chased),
                ]
            else:
                there = min(agents_seen, prey + adversaries - 1)
                blocks += [
                    _relative("agent", start, agents_seen, there),
                    _velocity("agent", start + 2 * agents_seen, agents_seen),
                ]
            self._layouts[is_adversary] = Layout(blocks, package=PACKAGE, known=KNOWN_VERSIONS)
        groups = [group for layout in self._layouts.values() for group in layout.schema().groups]
        by_name = {group.name: group for group in groups}
        slots = {name: max(g.slots for g in groups if g.name == name) for name in by_name}
        content = EntitySchema(tuple(by_name.values())).with_slots(slots).to_dict()
        content["groups"][0]["features"] = [*SELF, "is_adversary"]
        self.entity_schema = EntitySchema.from_dict(content)
        self.observation_space = self.entity_schema.space()

    def observe(self, agent: str, observation: np.ndarray) -> dict[str, np.ndarray]:
        """Cut an agent's observation into entities; its name says what it is."""
        is_adversary = agent.startswith("adversary")
        cut = self._layouts[is_adversary].split(observation)
        role = np.full((1, 1), is_adversary, np.float32)
        cut["self"] = np.concatenate([cut["self"], role], axis=1)
        result = {}
        for key, space in self.observation_space.spaces.items():
            assert space.shape is not None
            result[key] = np.zeros(space.shape, space.dtype)
            if key in cut:
                result[key][: len(cut[key])] = cut[key]
        return result


def make_spread(
    num_envs: int = 1,
    *,
    n: int = 3,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **kwargs: Any,
) -> ParallelVectorEnv:
    """Make simple_spread with one policy for all agents.

    Args:
        num_envs: Copies; the vector environment has n rows for each.
        n: Agents, and landmarks.
        autoreset_mode: See `ParallelVectorEnv`.
        **kwargs: Passed to `simple_spread_v3.parallel_env`, such as `max_cycles`.
    """
    module = require("mpe2.simple_spread_v3", PACKAGE)
    view = SpreadView(
        n,
        agents_seen=kwargs.get("num_agent_neighbors"),
        landmarks_seen=kwargs.get("num_landmark_neighbors"),
    )
    make = partial(module.parallel_env, N=n, **kwargs)
    return ParallelVectorEnv([make] * num_envs, view, autoreset_mode=autoreset_mode)


def make_tag(
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **kwargs: Any,
) -> ParallelVectorEnv:
    """Make simple_tag with one policy for adversaries and prey, who are told what they are.

    Args:
        num_envs: Copies; the vector environment has a row for each agent of each.
        autoreset_mode: See `ParallelVectorEnv`.
        **kwargs: Passed to `simple_tag_v3.parallel_env`, such as `num_good`.
    """
    module = require("mpe2.simple_tag_v3", PACKAGE)
    view = TagView(
        kwargs.get("num_good", 1),
        kwargs.get("num_adversaries", 3),
        kwargs.get("num_obstacles", 2),
        agents_seen=kwargs.get("num_agent_neighbors"),
        landmarks_seen=kwargs.get("num_landmark_neighbors"),
    )
    make = partial(module.parallel_env, **kwargs)
    return ParallelVectorEnv([make] * num_envs, view, autoreset_mode=autoreset_mode)


def _relative(name: str, start: int, count: int, present: int) -> Block:
    return Block(name, start, count, features=POINT, positions=POINT, presence=f"first {present}")


def _velocity(name: str, start: int, count: int) -> Block:
    return Block(name, start, count, features=SELF[:2], directions=SELF[:2])
