"""What `Kinematics` observations of highway-env contain, computed without data frames.

The original builds pandas data frames in every step. Here the same numbers are read into one
array: same order of vehicles, same arithmetic in float64, same use of the random generator, so
the result is equal bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["KNOWN_VERSIONS", "NumpyKinematics"]

#: Versions of highway-env whose observations were compared with these, bit by bit.
KNOWN_VERSIONS = ("1.10.1", "1.10.2", "1.11", "1.12.0", "1.12.1")

RELATIVE = ("x", "y", "vx", "vy")  # columns that are differences to the observer

# How each column is read from a vehicle.
VEHICLE: dict[str, Callable[[Any], float]] = {
    "presence": lambda _: 1.0,
    "x": lambda v: v.position[0],
    "y": lambda v: v.position[1],
    "vx": lambda v: v.velocity[0],
    "vy": lambda v: v.velocity[1],
    "heading": lambda v: v.heading,
    "cos_h": lambda v: v.direction[0],
    "sin_h": lambda v: v.direction[1],
    "cos_d": lambda v: v.destination_direction[0],
    "sin_d": lambda v: v.destination_direction[1],
    "long_off": lambda v: v.lane_offset[0],
    "lat_off": lambda v: v.lane_offset[1],
    "ang_off": lambda v: v.lane_offset[2],
}
# An obstacle stands still and has no destination; the other columns it does not have.
OBSTACLE: dict[str, Callable[[Any], float]] = {
    **{name: VEHICLE[name] for name in ("presence", "x", "y")},
    **dict.fromkeys(("vx", "vy", "cos_d", "sin_d"), lambda _: 0.0),
    "cos_h": lambda o: np.cos(o.heading),
    "sin_h": lambda o: np.sin(o.heading),
}
HIDDEN_INTENTIONS = dict.fromkeys(("cos_d", "sin_d"), lambda _: 0.0)


class NumpyKinematics:
    """Take the place of `observe` of a `KinematicObservation` or `ExitObservation`.

    Set it as an attribute of that object: `kind.observe = NumpyKinematics(kind)`. It holds nothing
    of its own, so copies and pickles of the environment keep working.

    Args:
        kind: The environment's `observation_type`.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __call__(self) -> np.ndarray:
        """Return the observation, (vehicles_count, F) float32; an absent row is 0."""
        kind = self.kind
        dtype = kind.space().dtype
        if not kind.env.road:
            return np.zeros(kind.space().shape)
        rows = self._rows()  # (n, F) float64
        if kind.normalize:
            self._normalise(rows)
        missing = kind.vehicles_count - len(rows)
        if missing > 0:
            rows = np.concatenate([rows, np.zeros((missing, rows.shape[1]))])
        if kind.order == "shuffled":
            kind.env.np_random.shuffle(rows[1:])
        return rows.astype(dtype)

    def _rows(self) -> np.ndarray:
        """Read the observer, then those around it: differences unless `absolute`."""
        kind = self.kind
        observer = kind.observer_vehicle
        others = self._others()[-kind.vehicles_count + 1 :]
        rows = np.array(
            [_read(observer, kind.features, VEHICLE)]
            + [self._read_other(other) for other in others],
            dtype=np.float64,
        )
        if not kind.absolute:
            for column, name in enumerate(kind.features):
                if name in RELATIVE:
                    rows[1:, column] -= VEHICLE[name](observer)
        if _is_exit(kind) and "x" in kind.features:  # there, the way that is left to the exit
            lane = kind.env.road.network.get_lane(("1", "2", -1))
            rows[0, list(kind.features).index("x")] = lane.local_coordinates(observer.position)[0]
        return rows

    def _others(self) -> list[Any]:
        kind = self.kind
        is_exit = _is_exit(kind)
        others: list[Any] = kind.env.road.close_objects_to(
            kind.observer_vehicle,
            kind.env.PERCEPTION_DISTANCE,
            count=kind.vehicles_count - 1,
            see_behind=kind.see_behind,
            sort=is_exit or kind.order == "sorted",
            vehicles_only=is_exit or not kind.include_obstacles,
        )
        return others

    def _read_other(self, other: Any) -> list[float]:
        readers = VEHICLE if hasattr(other, "lane_offset") else OBSTACLE
        if not self.kind.observe_intentions:
            readers = {**readers, **HIDDEN_INTENTIONS}
        return _read(other, self.kind.features, readers)

    def _normalise(self, rows: np.ndarray) -> None:
        """Map each range to [-1, 1], in place; the ranges were settled by the first observation."""
        kind = self.kind
        for name, (low, high) in kind.features_range.items():
            if name not in kind.features:
                continue
            column = list(kind.features).index(name)
            # highway-env's lmap, operation by operation: -1 + (v - low) * 2 / (high - low)
            rows[:, column] = -1 + (rows[:, column] - low) * (1 - -1) / (high - low)
            if kind.clip:
                rows[:, column] = np.clip(rows[:, column], -1, 1)


def _is_exit(kind: Any) -> bool:
    return type(kind).__name__ == "ExitObservation"


def _read(
    thing: Any, features: Sequence[str], readers: dict[str, Callable[[Any], float]]
) -> list[float]:
    """Read one row; NaN in columns that the thing does not have, as a data frame would."""
    return [readers[name](thing) if name in readers else np.nan for name in features]
