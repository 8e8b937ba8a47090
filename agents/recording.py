"""Watch a policy play: collect the frames of whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from entity_encoder.agents.environments import Environments
from entity_encoder.agents.evaluate import EVALUATION_SEED, Actions, EvaluationResult, evaluate
from entity_encoder.agents.making import is_array_task, make_environments
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.saved import show_to
from entity_encoder.agents.video import to_frame

__all__ = ["first_frame", "make_visible", "record"]


class _FrameLimitError(Exception):
    """Raised inside, when there are as many frames as were asked for."""


def record(
    policy: EntityPolicy | Actions,
    envs: Environments,
    *,
    episodes: int = 1,
    deterministic: bool = True,
    seed: int = EVALUATION_SEED,
    max_frames: int = 600,
    draw: Callable[[Environments], Any] | None = None,
) -> tuple[list[np.ndarray], EvaluationResult | None]:
    """Play episodes in the first environment and keep what is seen.

    Args:
        policy: The policy, or any function from observation to action.
        envs: One environment with ``render_mode="rgb_array"``.
        episodes: How many episodes to show, one after the other.
        deterministic: Take the most probable action instead of drawing one.
        seed: Of environments and drawn actions.
        max_frames: Stop in the middle of an episode rather than keep more.
        draw: Returns the picture of a new observation; default the environment's own frame.

    Returns:
        Frames (height, width, 3), and the result of the episodes, None if they were cut short.

    Raises:
        ValueError: There is more than one environment, or it draws no frames.
    """
    if envs.num_envs != 1:
        raise ValueError(f"num_envs must be 1 to record an episode, got {envs.num_envs}")
    frames: list[np.ndarray] = []

    def keep(envs: Environments) -> None:
        if len(frames) >= max_frames:
            raise _FrameLimitError
        frames.append(first_frame(envs.render()) if draw is None else to_frame(draw(envs)))

    try:
        result = evaluate(
            policy, envs, episodes, deterministic=deterministic, seed=seed, watch=keep
        )
    except _FrameLimitError:
        return frames, None
    if envs.mode is not AutoresetMode.NEXT_STEP:
        frames.pop()  # the first of an episode that nobody plays
    return frames, result


def make_visible(
    env: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    policy: EntityPolicy | None = None,
    device: Any = "cpu",
) -> Environments:
    """Make one environment that draws its frames, the last one of an episode among them.

    Args:
        env: Environment id.
        env_kwargs: Its options.
        policy: Who plays, if it was trained.
        device: Where the policy is.

    Raises:
        ValueError: The environment draws nothing.
    """
    options = {**(env_kwargs or {}), "render_mode": "rgb_array"}
    if is_array_task(env):
        options["autoreset_mode"] = AutoresetMode.NEXT_STEP
    vector = make_environments(env, num_envs=1, device=device, env_kwargs=options)
    if vector.render_mode != "rgb_array":
        vector.close()
        raise ValueError(
            f"environment {env!r} must draw frames to be recorded, got render_mode "
            f'{vector.render_mode!r} although it was made with "rgb_array"; keep the argument '
            "as `self.render_mode` and return an array from `render`"
        )
    if policy is None:
        return Environments(vector, device=device)
    return show_to(policy, vector, device=device)


def first_frame(rendered: Any) -> np.ndarray:
    """Return the first of the frames that `render` gave.

    Raises:
        ValueError: It gave none.
    """
    frame = rendered[0] if isinstance(rendered, (tuple, list)) and rendered else rendered
    if frame is None:
        raise ValueError(
            "environment must draw frames to be recorded, got None; "
            'make it with render_mode="rgb_array"'
        )
    return to_frame(frame)
