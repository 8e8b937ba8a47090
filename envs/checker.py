"""Check that an environment keeps the promises which entity policies and trainers rely on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.driver import Arrays, Driver, Transition
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["EnvReport", "check_entity_env"]

Inspect = Callable[[int, Transition], None]


@dataclass(frozen=True)
class EnvReport:
    """What happened while an environment was checked.

    Args:
        steps: Steps taken, over all environments.
        episodes: Episodes that ended.
        holes: Whether an absent slot was ever followed by a present one.
        empty_sets: Whether a group was ever empty.
        entities: Mean number of entities present.
    """

    steps: int
    episodes: int
    holes: bool
    empty_sets: bool
    entities: float


def check_entity_env(
    env: Any, *, steps: int = 100, seed: int = 0, padding_is_zero: bool = True
) -> EnvReport:
    """Play an environment with random legal actions and check all it promises.

    Checked are: spaces that can be read, keys, shapes, dtypes and bounds of observations, masks
    of exactly 0 and 1, absent rows that are 0, finite numbers, at least one legal action, flags
    and rewards; the same trajectory for the same seed; that `reset()` continues the random stream;
    observations that are neither overwritten later nor connected to the environment's own memory;
    and for vector environments the autoreset mode they declare and the masks in `infos`.

    Args:
        env: A `gymnasium.Env` or a `gymnasium.vector.VectorEnv`.
        steps: Steps to take in each of several runs.
        seed: Seed of the environment and the actions.
        padding_is_zero: Whether rows of absent entities must be 0. The encoder never looks at
            them, but an inverted mask is found this way.

    Returns:
        What was seen; `holes` and `empty_sets` tell whether the run covered them.

    Raises:
        TypeError: When `env` is no environment.
        ValueError: Naming the broken promise, the key and the environment.
    """
    driver = Driver(env)
    schema = _check_spaces(driver)

    def inspect(step: int, transition: Transition) -> None:
        observation, reward, terminated, truncated, infos = transition
        _check_observation(driver, schema, observation, f"step {step}", padding_is_zero)
        _check_results(driver, reward, terminated, truncated, f"step {step}")
        if driver.is_vector:
            _check_infos(infos, driver.num_envs, f"step {step}")

    first = _play(driver, steps, seed, inspect)
    _check_legal(driver, first)
    _check_repeats(first, _play(driver, steps, seed), "the same seed")
    spoiled = _play(driver, steps, seed, spoil=True)
    _check_repeats(first, spoiled, "a caller who edits observations")
    _check_streams(driver, seed)
    if driver.is_vector:
        _check_autoreset(driver, steps, seed)
    return _report(driver, schema, first)


def _check_spaces(driver: Driver) -> EntitySchema:
    space = driver.observation_space
    if not isinstance(space, spaces.Dict):
        raise ValueError(f"observation_space must be a Dict, got {space}")
    declared = getattr(driver.env.unwrapped, "entity_schema", None)
    schema = declared if isinstance(declared, EntitySchema) else EntitySchema.from_space(space)
    for group in schema.groups:
        if group.name not in space.spaces or (group.mask_key or group.name) not in space.spaces:
            raise ValueError(
                f"observation_space must hold {group.name!r} and {group.mask_key!r}, got "
                f"{list(space.spaces)}"
            )
    action = driver.action_space
    if isinstance(action, (SelectEntity, PerEntity)):
        slots = schema.group(action.group).slots
        if slots != action.slots:
            raise ValueError(
                f"action_space must have as many slots as group {action.group!r}, {slots}, "
                f"got {action.slots}"
            )
    if driver.is_vector and driver.mode is None:
        raise ValueError(
            "metadata['autoreset_mode'] must be a gymnasium AutoresetMode, got "
            f"{driver.env.metadata.get('autoreset_mode')!r}; set it in the constructor"
        )
    return schema


def _play(
    driver: Driver, steps: int, seed: int, inspect: Inspect | None = None, spoil: bool = False
) -> list[Transition]:
    """Play and keep copies; with `spoil`, overwrite what the environment handed out.

    Raises:
        ValueError: When an observation changes after it was handed out.
    """
    driver.seed_actions(seed)
    given = driver.reset(seed)
    kept = copy.deepcopy(given)
    none = np.zeros(driver.num_envs, bool)
    record: list[Transition] = [(kept, np.zeros(driver.num_envs), none, none, {})]
    for step in range(1, steps + 1):
        if inspect is not None:
            inspect(step - 1, record[-1])
        action = driver.sample(kept)
        if spoil:
            for value in given.values():
                if value.flags.writeable:
                    value[...] = 1
        ended = record[-1][2] | record[-1][3]
        earlier, before = given, kept
        if ended.any() and driver.mode in (None, AutoresetMode.DISABLED):
            given = driver.reset(mask=ended if driver.is_vector else None)
            result: tuple[Any, ...] = (np.zeros(driver.num_envs), none, none, {})
        else:
            given, *rest = driver.step(action)
            result = tuple(copy.deepcopy(rest))
        kept = copy.deepcopy(given)
        record.append((kept, *result))
        if not spoil and _difference(earlier, before):
            raise ValueError(
                f"observations must never be overwritten, but {_difference(earlier, before)!r} of "
                f"step {step - 1} changed during step {step}; return a new array each time"
            )
    if inspect is not None:
        inspect(steps, record[-1])
    return record


def _difference(one: Arrays, other: Arrays) -> str | None:
    """Return the first key in which two observations differ."""
    if one.keys() != other.keys():
        return ", ".join(sorted(one.keys() ^ other.keys()))
    return next((k for k in one if not np.array_equal(one[k], other[k], equal_nan=True)), None)


def _check_observation(
    driver: Driver, schema: EntitySchema, observation: Arrays, where: str, padding_is_zero: bool
) -> None:
    assert isinstance(driver.observation_space, spaces.Dict)
    expected = driver.observation_space.spaces
    if observation.keys() != expected.keys():
        raise ValueError(
            f"observation must have the keys {sorted(expected)}, got {sorted(observation)} at "
            f"{where}"
        )
    for key, value in observation.items():
        space = expected[key]
        shape = (driver.num_envs, *(space.shape or ()))
        mask = isinstance(space, spaces.MultiBinary)
        fits = value.dtype == space.dtype or (mask and value.dtype == np.bool_)
        if value.shape != shape or not fits:
            raise ValueError(
                f"observation[{key!r}] must have shape {shape} and dtype {space.dtype}, got "
                f"{value.shape} and {value.dtype} at {where}"
            )
        for env, row in enumerate(value):
            if not space.contains(row.astype(space.dtype)):
                raise ValueError(
                    f"observation[{key!r}] must lie in {space}, got {row} in env {env} at {where}"
                )
    schema.check(observation)
    for group in schema.groups if padding_is_zero else ():
        if group.mask_key is None:
            continue
        stray = (observation[group.mask_key] == 0) & (observation[group.name] != 0).any(-1)
        if stray.any():
            env, slot = np.argwhere(stray)[0]
            raise ValueError(
                f"rows of absent entities must be 0, got {observation[group.name][env, slot]} in "
                f"group {group.name!r}, env {env}, slot {slot} at {where}; is the mask inverted?"
            )


def _check_results(
    driver: Driver, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, where: str
) -> None:
    shape = (driver.num_envs,)
    if reward.shape != shape or not np.isfinite(reward).all():
        raise ValueError(f"reward must be finite of shape {shape}, got {reward} at {where}")
    for name, flags in (("terminated", terminated), ("truncated", truncated)):
        if flags.shape != shape or flags.dtype != np.bool_:
            raise ValueError(
                f"{name} must be bool of shape {shape}, got {flags.dtype} of shape {flags.shape} "
                f"at {where}"
            )


def _check_infos(infos: dict[str, Any], num_envs: int, where: str) -> None:
    for key, value in infos.items():
        if key.startswith("_"):
            continue
        mask = infos.get(f"_{key}")
        if mask is None or tuple(mask.shape) != (num_envs,):
            raise ValueError(
                f"infos[{key!r}] must come with a bool mask '_{key}' of shape ({num_envs},), got "
                f"{mask} at {where}"
            )
        if not isinstance(value, dict) and len(value) != num_envs:
            raise ValueError(
                f"infos[{key!r}] must have one entry for each of {num_envs} envs, got "
                f"{len(value)} at {where}"
            )


def _check_legal(driver: Driver, record: list[Transition]) -> None:
    for step, (observation, _, terminated, truncated, _) in enumerate(record):
        legal = driver.legal(observation)
        if legal is None:
            return
        stuck = ~legal.any(-1)  # (E,) or (E, slots)
        acts = driver.acts(observation)
        if acts is not None:
            stuck = (stuck & acts).any(1)
        stuck &= ~(terminated | truncated)
        if stuck.any():
            raise ValueError(
                "every state in which an episode goes on must have a legal action, got none in "
                f"env {stuck.argmax()} at step {step}"
            )


def _check_repeats(first: list[Transition], second: list[Transition], cause: str) -> None:
    for step, (one, other) in enumerate(zip(first, second, strict=True)):
        key = _difference(one[0], other[0])
        if key is None:
            pairs = zip(("reward", "terminated", "truncated"), one[1:4], other[1:4], strict=True)
            key = next((name for name, a, b in pairs if not np.array_equal(a, b)), None)
        if key is not None:
            raise ValueError(
                f"trajectories must be equal under {cause}, got another {key!r} at step {step}"
            )


def _check_streams(driver: Driver, seed: int) -> None:
    runs = []
    for _ in range(2):
        driver.reset(seed)
        runs.append([copy.deepcopy(driver.reset()) for _ in range(2)])
    for one, other in zip(*runs, strict=True):
        key = _difference(one, other)
        if key is not None:
            raise ValueError(
                f"reset() must continue the stream that reset(seed={seed}) began, got another "
                f"{key!r} the second time"
            )


def _check_autoreset(driver: Driver, steps: int, seed: int) -> None:
    driver.seed_actions(seed)
    observation = copy.deepcopy(driver.reset(seed))
    ended = np.zeros(driver.num_envs, bool)
    for step in range(1, steps + 1):
        if driver.mode is AutoresetMode.DISABLED and ended.any():
            before = observation
            observation = copy.deepcopy(driver.reset(mask=ended))
            for key, value in observation.items():
                if not np.array_equal(value[~ended], before[key][~ended]):
                    raise ValueError(
                        "reset with a reset_mask must leave the other environments alone, got "
                        f"another {key!r} at step {step}"
                    )
        observation, reward, terminated, truncated, infos = copy.deepcopy(
            driver.step(driver.sample(observation))
        )
        idle = reward[ended].any() or (terminated | truncated)[ended].any()
        if driver.mode is AutoresetMode.NEXT_STEP and idle:
            raise ValueError(
                "in NEXT_STEP mode the step after an end must return reward 0 and False flags, "
                f"got something else in env {ended.argmax()} at step {step}"
            )
        ended = terminated | truncated
        if driver.mode is AutoresetMode.SAME_STEP and ended.any():
            _check_final(driver, infos, ended, step)
            ended = np.zeros_like(ended)


def _check_final(driver: Driver, infos: dict[str, Any], ended: np.ndarray, step: int) -> None:
    final, mask = infos.get("final_obs"), infos.get("_final_obs")
    if final is None or mask is None or not np.array_equal(np.asarray(mask), ended):
        raise ValueError(
            "in SAME_STEP mode infos must hold 'final_obs' and '_final_obs' for the environments "
            f"that ended, got {sorted(infos)} at step {step}"
        )
    if isinstance(final, dict):  # batched tensors
        return
    for env in ended.nonzero()[0]:
        if not driver.observation_space.contains(final[env]):
            raise ValueError(
                f"infos['final_obs'][{env}] must be an observation, got {final[env]} at step {step}"
            )


def _report(driver: Driver, schema: EntitySchema, record: list[Transition]) -> EnvReport:
    keys = [group.mask_key for group in schema.groups if group.mask_key is not None]
    masks = [[observation[key] > 0 for key in keys] for observation, *_ in record]
    return EnvReport(
        steps=(len(record) - 1) * driver.num_envs,
        episodes=int(
            sum((terminated | truncated).sum() for _, _, terminated, truncated, _ in record)
        ),
        holes=any((~m[:, :-1] & m[:, 1:]).any() for row in masks for m in row),
        empty_sets=any((~m.any(1)).any() for row in masks for m in row),
        entities=float(np.mean([sum(m.sum(1) for m in row) for row in masks])),
    )
