"""One environment of a vectorised task as an ordinary `gymnasium.Env`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.actions import LegalSampler
from entity_encoder.envs.registration import find_task
from entity_encoder.envs.vector import EntityVectorEnv
from entity_encoder.schema import EntitySchema

__all__ = ["EntityEnv"]


class EntityEnv(gymnasium.Env[dict[str, np.ndarray], Any]):
    """Play a task in a single environment, with the trajectories of a batch of the same seed.

    Args:
        task: A subclass of `EntityVectorEnv`, or the name of one of ours, such as "Minefield".
        render_mode: "rgb_array", "human" or None.
        time_limit: The task's `max_episode_steps`. `gymnasium.make` keeps an option of that name
            to itself and wraps the environment, which then does not know how much time is left.
        **options: Options of the task.

    Attributes:
        task: The vectorised environment underneath, of one row.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (an instance attribute in gymnasium's types)
        "render_modes": ["human", "rgb_array"],
        "render_fps": 8,
    }

    def __init__(
        self,
        task: str | type[EntityVectorEnv],
        *,
        render_mode: str | None = None,
        time_limit: int | None = None,
        **options: Any,
    ) -> None:
        if time_limit is not None:
            options["max_episode_steps"] = time_limit
        make: Any = find_task(task) if isinstance(task, str) else task
        fixed = {"output": "numpy", "autoreset_mode": AutoresetMode.DISABLED}
        self.task: EntityVectorEnv = make(1, render_mode=render_mode, **fixed, **options)
        self.render_mode = render_mode
        self.observation_space = self.task.single_observation_space
        self.action_space = self.task.single_action_space
        self._sampler = LegalSampler(self.action_space)

    @property
    def entity_schema(self) -> EntitySchema:
        """What the observation contains."""
        return self.task.entity_schema

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode; `reset(seed=None)` begins the next one of the same stream."""
        first = self._np_random is None
        super().reset(seed=seed, options=options)
        if seed is None and first:  # nobody chose a seed: draw one from the system's entropy
            seed = int(self.np_random.integers(2**62))
        observation, _ = self.task.reset(seed=seed, options=options)
        self._sampler.legal = self._legal()
        return _first_row(observation), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Take one step.

        Raises:
            ResetNeeded: Before `reset`, or after the end of an episode.
            ValueError: For an impossible action.
        """
        batch = torch.as_tensor(action)[None]
        observation, reward, terminated, truncated, infos = self.task.step(batch)
        self._sampler.legal = self._legal()
        info = {key: value[0] for key, value in infos.items() if not key.startswith("_")}
        return (
            _first_row(observation),
            float(reward[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            info,
        )

    def render(self) -> np.ndarray | None:
        """Draw the current state."""
        frames = self.task.render()
        return None if frames is None else frames[0]

    def reference_action(self) -> Any:
        """Return what the task's scripted policy would do now."""
        action = self.task.reference_policy(self.task.state)[0].cpu().numpy()
        return action[()]

    def get_state(self) -> dict[str, Any]:
        """Return everything that the future depends on, as tensors."""
        return self.task.get_state()

    def set_state(self, content: dict[str, Any]) -> None:
        """Continue exactly where `get_state` was called."""
        self.task.set_state(content)
        self._sampler.legal = self._legal()

    def close(self) -> None:
        """Close the window, if there is one."""
        self.task.close()

    def _legal(self) -> torch.Tensor | None:
        legal = self.task.legal
        return None if legal is None else legal[0]


def _first_row(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: value[0] for key, value in observation.items()}
