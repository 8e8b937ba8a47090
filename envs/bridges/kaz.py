"""PettingZoo's knights-archers-zombies, one policy for knights and archers.

pip install "entity-encoder[envs]"
entity-encoder train Bridge/knights_archers_zombies-v11 --total-steps 1000000
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.bridges.packages import layout_error, require
from entity_encoder.envs.bridges.parallel import ParallelVectorEnv
from entity_encoder.schema import EntityGroup, EntitySchema

__all__ = ["KazView", "make_kaz"]

PACKAGE = "pettingzoo"
KNOWN_VERSIONS = ("1.27.0",)
#: Kinds in the one-hot columns of `obs_method="vector-masked"`; the last is the agent itself.
KINDS = ("zombie", "archer", "knight", "sword", "arrow", "self")
FEATURES = ("distance", "x", "y", "heading_x", "heading_y")


class KazView:
    """What a knight or archer sees, kind by kind.

    The original is a table of 11 columns: 6 that say the kind, then `distance, x, y, heading_x,
    heading_y`, with rows of zeros for what does not exist. Row 0 is the agent itself; then follow
    archers, knights, swords, arrows and zombies, among whom the agent stands a second time.

    | group | columns |
    |---|---|
    | `self` (1) | the five, `x, y` absolute in [0, 1], and `is_archer` |
    | `archer`, `knight`, `sword`, `arrow`, `zombie` | the five, `x, y` relative to the agent |

    The agent's second row is left out, and empty groups (no archers, say) too.

    Args:
        archers: `num_archers`.
        knights: `num_knights`.
        zombies: `max_zombies`.
        arrows: `max_arrows`.
    """

    def __init__(
        self, archers: int = 2, knights: int = 2, zombies: int = 10, arrows: int = 10
    ) -> None:
        counts = {
            "archer": archers,
            "knight": knights,
            "sword": knights,
            "arrow": arrows,
            "zombie": zombies,
        }
        self._places: dict[str, slice] = {}
        start = 1
        for name, count in counts.items():
            if count:
                self._places[name] = slice(start, start + count)
            start += count
        self._shape = (start, len(KINDS) + len(FEATURES))
        heading = FEATURES[3:]
        groups = [EntityGroup("self", 1, (*FEATURES, "is_archer"), "self_mask", directions=heading)]
        for name in self._places:
            groups.append(
                EntityGroup(
                    name,
                    counts[name],
                    FEATURES,
                    f"{name}_mask",
                    positions=("x", "y"),
                    directions=heading,
                )
            )
        self.entity_schema = EntitySchema(tuple(groups))
        self.observation_space = self.entity_schema.space(-1.0, 1.0)

    def observe(self, agent: str, observation: np.ndarray) -> dict[str, np.ndarray]:
        """Cut an agent's table into kinds; its name says where it stands a second time.

        Raises:
            ValueError: When the table does not have the promised layout.
        """
        rows = np.asarray(observation, np.float32)
        if rows.shape != self._shape:
            raise layout_error(
                PACKAGE,
                KNOWN_VERSIONS,
                f"observation must have shape {self._shape}, got {rows.shape}",
            )
        if rows[0, KINDS.index("self")] != 1:
            raise layout_error(
                PACKAGE,
                KNOWN_VERSIONS,
                f"row 0 must be the agent itself, got kind columns {rows[0, : len(KINDS)]}",
            )
        kind, _, number = agent.partition("_")
        is_archer = np.full((1, 1), kind == "archer", np.float32)
        own = np.concatenate([rows[:1, len(KINDS) :], is_archer], axis=1)
        result = {"self": own, "self_mask": np.ones(1, np.int8)}
        for name, place in self._places.items():
            mask = rows[place, KINDS.index(name)] > 0.5
            if name == kind:
                mask[int(number)] = False
            result[name] = np.where(mask[:, None], rows[place, len(KINDS) :], np.float32(0))
            result[f"{name}_mask"] = mask.astype(np.int8)
        return result


def make_kaz(
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **kwargs: Any,
) -> ParallelVectorEnv:
    """Make knights-archers-zombies with one policy for all agents.

    Args:
        num_envs: Copies; the vector environment has a row for each agent of each.
        autoreset_mode: See `ParallelVectorEnv`.
        **kwargs: Passed to `parallel_env`, such as `num_archers`; `obs_method` is settled.
    """
    module = require(
        "pettingzoo.butterfly.knights_archers_zombies.knights_archers_zombies", PACKAGE
    )
    require("pygame", "pygame-ce")
    view = KazView(
        kwargs.get("num_archers", 2),
        kwargs.get("num_knights", 2),
        kwargs.get("max_zombies", 10),
        kwargs.get("max_arrows", 10),
    )
    make = partial(module.parallel_env, obs_method="vector-masked", **kwargs)
    return ParallelVectorEnv([make] * num_envs, view, autoreset_mode=autoreset_mode)
