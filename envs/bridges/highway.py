"""highway-env: the vehicles around the observer as entities.

pip install "entity-encoder[envs]"
entity-encoder train Bridge/highway-fast-v0 --total-steps 20000
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from entity_encoder.envs.bridges.kinematics import KNOWN_VERSIONS, NumpyKinematics
from entity_encoder.envs.bridges.packages import layout_error, require, version_of
from entity_encoder.errors import choose
from entity_encoder.schema import EgoFrame, EntityGroup, EntitySchema

__all__ = ["HighwayEntities", "make_highway"]

PAIRS = (("vx", "vy"), ("cos_h", "sin_h"), ("cos_d", "sin_d"))  # components of vectors
KINDS = ("Kinematics", "ExitObservation")


class HighwayEntities(
    gymnasium.Wrapper[dict[str, np.ndarray], Any, np.ndarray, Any], RecordConstructorArgs
):
    """Deliver a `Kinematics` observation of highway-env as entities with masks.

    **Observation.** The original is an array (vehicles_count, features) whose first row is the
    observer ("ego") and whose column `presence` says which rows are vehicles. Here:

    | key | shape | content |
    |---|---|---|
    | `ego` | (1, F) | the observer; `x, y, vx, vy` are absolute |
    | `ego_mask` | (1,) | always 1 |
    | `vehicle` | (vehicles_count - 1, F) | the others; relative unless `absolute` |
    | `vehicle_mask` | (vehicles_count - 1,) | `presence > 0.5` |

    F are the configured features without `presence`, which the mask replaces, scaled and clipped
    as configured. Rows keep their order: nearest first with `order="sorted"`. Absent rows are 0.
    Obstacles have no `heading`, `long_off`, `lat_off`, `ang_off`: the original delivers NaN there,
    this wrapper 0. With `vehicles_count=1` there is no group `vehicle` (the original then returns
    more rows than its space has). With `ego="flag"` there is one group `vehicle` of vehicles_count
    slots and a last column `is_ego`.

    **Actions, rewards, ends** are the original's: crashes terminate, the end of `duration`
    truncates.

    Args:
        env: A highway-env environment whose observation is of type `Kinematics` or
            `ExitObservation`, with any of their options.
        ego: "group" for a group of its own, "flag" for a column in the common group.
        numpy_observe: Compute observations without pandas, equal bit by bit and several times
            faster. None: if the installed version is known (`kinematics.KNOWN_VERSIONS`).
        frame: Frame of reference for the encoder; meaningful with `absolute` observations.

    Attributes:
        entity_schema: What the observation contains. Coordinates are declared as positions where
            those of a group belong to one frame.

    Raises:
        TypeError: When it is no environment of highway-env.
        ValueError: For another type of observation, features without `presence`, or a layout that
            another version of the package brought.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        ego: Literal["group", "flag"] = "group",
        numpy_observe: bool | None = None,
        frame: EgoFrame | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, ego=ego, numpy_observe=numpy_observe, frame=frame)
        gymnasium.Wrapper.__init__(self, env)
        self.ego = choose("ego", ego, ("group", "flag"))
        kind = self._kind()
        self.features: tuple[str, ...] = tuple(kind.features)
        self.vehicles_count = int(kind.vehicles_count)
        _check_options(kind)
        self._check_space(env.observation_space)
        known = version_of("highway-env") in KNOWN_VERSIONS
        self.numpy_observe = known if numpy_observe is None else numpy_observe
        self._presence = self.features.index("presence")
        self._columns = [i for i, name in enumerate(self.features) if name != "presence"]
        self.entity_schema = self._make_schema(kind, frame)
        self.observation_space: spaces.Space[Any] = self.entity_schema.space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode.

        Raises:
            ValueError: When `options["config"]` changes what is observed.
        """
        rows: Any
        rows, info = self.env.reset(seed=seed, options=options)
        kind = self._kind()  # a new object in every episode
        if tuple(kind.features) != self.features or kind.vehicles_count != self.vehicles_count:
            raise ValueError(
                f"options['config'] must keep features {self.features} and vehicles_count "
                f"{self.vehicles_count}, got {tuple(kind.features)} and {kind.vehicles_count}; "
                "make another environment for them"
            )
        if self.numpy_observe:
            kind.observe = NumpyKinematics(kind)
        return self.observation(rows), info

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Take one step."""
        rows: Any
        rows, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(rows), float(reward), bool(terminated), bool(truncated), info

    def observation(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Turn the original's array, (n, F + 1), into groups with masks.

        Raises:
            ValueError: When it does not have the promised layout.
        """
        rows = rows[: self.vehicles_count]  # vehicles_count=1 brings everybody
        expected = (self.vehicles_count, len(self.features))
        if rows.shape != expected:
            raise layout_error(
                "highway-env",
                KNOWN_VERSIONS,
                f"observation must have shape {expected}, got {rows.shape}",
            )
        mask = rows[:, self._presence] > 0.5  # presence is never scaled
        if not mask[0]:
            raise layout_error(
                "highway-env",
                KNOWN_VERSIONS,
                "observation must hold the observer in row 0, "
                f"got presence {rows[0, self._presence]:g}",
            )
        values = np.where(mask[:, None], rows[:, self._columns], 0).astype(np.float32)
        np.nan_to_num(values, copy=False, nan=0.0)  # what obstacles do not have
        present = mask.astype(np.int8)
        if self.ego == "flag":
            is_ego = np.zeros((len(values), 1), np.float32)
            is_ego[0] = 1.0
            return {"vehicle": np.concatenate([values, is_ego], axis=1), "vehicle_mask": present}
        observation: dict[str, np.ndarray] = {"ego": values[:1], "ego_mask": present[:1]}
        if self.vehicles_count > 1:
            observation |= {"vehicle": values[1:], "vehicle_mask": present[1:]}
        return observation

    def _kind(self) -> Any:
        """Return the object that makes the original's observations."""
        kind = getattr(self.unwrapped, "observation_type", None)
        if kind is None:
            raise TypeError(f"env must be one of highway-env, got {self.unwrapped}")
        if type(kind).__name__ not in ("KinematicObservation", "ExitObservation"):
            raise ValueError(
                f"observation type must be one of {list(KINDS)}, got {type(kind).__name__}; "
                'pass config={"observation": {"type": "Kinematics"}}'
            )
        return kind

    def _check_space(self, space: spaces.Space[Any]) -> None:
        expected = (self.vehicles_count, len(self.features))
        if not isinstance(space, spaces.Box) or space.shape != expected:
            raise layout_error(
                "highway-env",
                KNOWN_VERSIONS,
                f"observation_space must be a Box of shape {expected}, got {space}; "
                "wrap the environment before any other wrapper of observations",
            )

    def _make_schema(self, kind: Any, frame: EgoFrame | None) -> EntitySchema:
        names = [self.features[i] for i in self._columns]
        has_points = "x" in names and "y" in names
        roles: dict[str, Any] = {
            "directions": tuple(c for pair in PAIRS if set(pair) <= set(names) for c in pair),
            "angles": ("heading",) if "heading" in names else (),
        }
        # Relative coordinates are in the observer's frame, its own are not.
        of_others = ("x", "y") if has_points else ()
        of_ego = of_others if kind.absolute else ()
        if self.ego == "flag":
            slots, columns = self.vehicles_count, (*names, "is_ego")
            groups = [EntityGroup("vehicle", slots, columns, "vehicle_mask", None, of_ego, **roles)]
        else:
            columns = tuple(names)
            groups = [EntityGroup("ego", 1, columns, "ego_mask", None, of_ego, **roles)]
            if self.vehicles_count > 1:
                slots = self.vehicles_count - 1
                groups.append(
                    EntityGroup("vehicle", slots, columns, "vehicle_mask", None, of_others, **roles)
                )
        return EntitySchema(tuple(groups), frame=frame)


def make_highway(
    env_id: str,
    *,
    ego: Literal["group", "flag"] = "group",
    numpy_observe: bool | None = None,
    frame: EgoFrame | None = None,
    **kwargs: Any,
) -> HighwayEntities:
    """Make an environment of highway-env that observes entities.

    A factory for vector environments: `partial(make_highway, "highway-fast-v0")`. The ids in
    `registration.HIGHWAY_IDS` are registered too: `gymnasium.make_vec("Bridge/highway-v0", 4)`.

    Args:
        env_id: Id of highway-env, such as "highway-fast-v0".
        ego: See `HighwayEntities`, as for the next two.
        numpy_observe: See there.
        frame: See there.
        **kwargs: Passed to `gymnasium.make`, such as `config={"vehicles_count": 10}`.
    """
    module = require("highway_env", "highway-env")
    register = getattr(module, "_register_highway_envs", None)
    if register is not None and env_id not in gymnasium.registry:
        register()
    env = gymnasium.make(env_id, disable_env_checker=True, **kwargs)
    return HighwayEntities(env, ego=ego, numpy_observe=numpy_observe, frame=frame)


def _check_options(kind: Any) -> None:
    features = list(kind.features)
    if "presence" not in features:
        raise ValueError(
            f"features must contain 'presence', which the masks are made of, got {features}"
        )
    if kind.features_range and "presence" in kind.features_range:
        raise ValueError(
            "features_range must leave 'presence' alone, which the masks are made of, "
            f"got {kind.features_range['presence']}"
        )
    if kind.order != "sorted":
        warnings.warn(
            f"order={kind.order!r} picks vehicles in no order of distance, so the nearest one may "
            "be left out; an encoder of entities does not depend on their order: use 'sorted'",
            stacklevel=3,
        )
