"""Watch a policy play: collect the frames of whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from entity_encoder.agents.environments import Environments
from entity_encoder.agents.evaluate import EVALUATION_SEED, Actions, EvaluationResult, evaluate
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.video import to_frame

__all__ = ["record"]


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
) -> tuple[list[np.ndarray], EvaluationResult | None]:
    """Play episodes in the first environment and keep what is seen.

    Args:
        policy: The policy, or any function from observation to action.
        envs: One environment with ``render_mode="rgb_array"``.
        episodes: How many episodes to show, one after the other.
        deterministic: Take the most probable action instead of drawing one.
        seed: Of environments and drawn actions.
        max_frames: Stop in the middle of an episode rather than keep more.

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
        frames.append(_first_frame(envs.render()))

    try:
        result = evaluate(
            policy, envs, episodes, deterministic=deterministic, seed=seed, watch=keep
        )
    except _FrameLimitError:
        return frames, None
    return frames, result


def _first_frame(rendered: Any) -> np.ndarray:
    frame = rendered[0] if isinstance(rendered, (tuple, list)) and rendered else rendered
    if frame is None:
        raise ValueError(
            "environment must draw frames to be recorded, got None; "
            'make it with render_mode="rgb_array"'
        )
    return to_frame(frame)
