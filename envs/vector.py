"""The base class of all tasks: many environments held in tensors and stepped by array code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import error, spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from PIL import Image
from torch import Tensor

from entity_encoder.envs.actions import ActionReader, LegalSampler, legal_actions, mask_shape
from entity_encoder.envs.export import Exporter
from entity_encoder.envs.groups import Global, Group, check_option, make_schema, make_space
from entity_encoder.envs.rendering import Viewer
from entity_encoder.envs.resets import (
    fill_rows,
    merge_rows,
    read_autoreset_mode,
    read_reset_mask,
    shuffle_slots,
)
from entity_encoder.envs.rng import Rng
from entity_encoder.envs.streams import Seed, Streams
from entity_encoder.schema import EgoFrame

__all__ = ["EntityVectorEnv", "State"]

State = dict[str, Tensor]


class EntityVectorEnv(VectorEnv[dict[str, Any], Any, Any], ABC):
    """Hold E environments of one task in tensors on one device.

    A task is a subclass that declares its spaces in `__init__` and writes four functions over
    batches: `initial`, `transition`, `observe` and `reference_policy`. They are functions of
    their arguments: they keep nothing on `self`, change no tensor in place, and treat every row
    alone. The state is a dict of tensors with leading dimension E. This class adds `elapsed`, the
    number of steps taken, int64, (E,), and takes care of seeds, resets, slots in random order,
    time limits, checks, gymnasium's formats and resuming.

    **Observations** are dicts of fresh tensors (`output="torch"`, masks bool) or arrays
    (`output="numpy"`, masks int8). They are never overwritten, and changing them in place changes
    no environment.

    **Infos.** Where an episode ends, `score` holds (return - random) / (reference - random), with
    gymnasium's mask `_score`; so does `success`, 1 or 0, for tasks that define it. In SAME_STEP
    mode `final_obs`, `_final_obs`, `final_info` and `_final_info` are added: object arrays as
    gymnasium defines them with `output="numpy"`; with `output="torch"`, `final_obs` is a dict of
    batched tensors whose rows mean something where `_final_obs`, a bool tensor, is True. With
    `output="torch"` these keys are always there, so that nothing has to wait for the device.

    **Seeds.** Environment i of `reset(seed=s)` behaves like a single environment seeded s + i,
    whatever the number of environments and the autoreset mode. `reset(seed=None)` begins the next
    episode of every stream.

    Args:
        num_envs: Number of environments, E.
        groups: The kinds of entities.
        global_features: Vectors that belong to the whole state.
        action_space: Action space of one environment.
        action_mask: Whether the observation has a key `action_mask`, (n,) or (slots, n).
        frame: Frame of reference that the encoder should use.
        grid: Length of a step, where positions are places on a grid.
        max_episode_steps: Steps after which an episode is truncated, or None.
        device: Where everything lives.
        output: Kind of what `reset` and `step` return.
        autoreset_mode: One of gymnasium's modes, or its name.
        shuffle_slots: Whether slots take a random order in each episode, holes included.
        render_mode: "rgb_array", "human" or None.

    Raises:
        ValueError: For a value outside its range or choices.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (gymnasium's type; each instance has its own)
        "render_modes": ["human", "rgb_array"],
        "render_fps": 8,
    }

    #: What the choices of a Discrete action space are called in pictures; empty: their numbers.
    action_names: tuple[str, ...] = ()

    #: Mean return of a policy that draws among the legal actions, and that of the reference.
    random_return: float = 0.0
    reference_return: float = 1.0

    def __init__(
        self,
        num_envs: int = 1,
        *,
        groups: Sequence[Group],
        action_space: spaces.Space[Any],
        global_features: Sequence[Global] = (),
        action_mask: bool = False,
        frame: EgoFrame | None = None,
        grid: float | None = None,
        max_episode_steps: int | None = None,
        device: str | torch.device = "cpu",
        output: Literal["numpy", "torch"] = "numpy",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        shuffle_slots: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.num_envs = check_option("num_envs", num_envs, 1, 2**24)
        if max_episode_steps is not None:
            check_option("max_episode_steps", max_episode_steps, 1, 2**31)
        self.max_episode_steps = max_episode_steps
        self.device = torch.device(device)
        self.output = output
        self.autoreset_mode = read_autoreset_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.shuffle_slots = shuffle_slots
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode must be one of {self.metadata['render_modes']} or None, "
                f"got {render_mode!r}"
            )
        self.render_mode = render_mode
        self.groups = tuple(groups)
        self.entity_schema = make_schema(groups, global_features, frame, action_mask, grid)
        sizes = mask_shape(action_space) if action_mask else None
        self.single_observation_space = make_space(groups, global_features, sizes)
        self.single_action_space = action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._sampler = LegalSampler(self.action_space)
        self._reader = ActionReader(action_space, num_envs, self.device)
        self._exporter = Exporter(output)
        self._viewer = Viewer(render_mode, type(self).__name__, self.metadata["render_fps"])
        self._state: State | None = None
        self._owned: State = {}  # tensors made here, which may be changed in place
        self._streams = Streams(num_envs, self.device)
        self._ended = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self._ended_rows: Tensor | None = None  # see `_rows`
        self._return = torch.zeros(num_envs, device=self.device)
        self._legal: tuple[Tensor | None, str] = (None, "")
        self._actors: Tensor | None = None

    # What a task writes ---------------------------------------------------------------------

    @abstractmethod
    def initial(self, rng: Rng) -> State:
        """Draw the first state of `len(rng)` episodes."""

    @abstractmethod
    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Return the next state, reward (float32), terminated and truncated (bool, or None)."""

    @abstractmethod
    def observe(self, state: State) -> dict[str, Tensor]:
        """Return the observation; a mask that is left out means that every slot is present."""

    def reference_policy(self, state: State) -> Tensor:
        """Return the action of a scripted policy that knows the whole state.

        Raises:
            TypeError: When the task defines none.
        """
        raise TypeError(f"{type(self).__name__} has no scripted policy: define reference_policy")

    def success(self, state: State) -> Tensor | None:
        """Return whether an episode that ends in this state is won, bool (E,), if a task tells."""
        return None

    def render_frame(self, state: State) -> Image.Image:
        """Draw one environment, given its state without the leading dimension.

        Raises:
            TypeError: When the task defines no drawing.
        """
        raise TypeError(f"{type(self).__name__} cannot be drawn: define render_frame")

    # What gymnasium and the trainer call ----------------------------------------------------

    @property
    def state(self) -> State:
        """The current state; treat it as read-only.

        Raises:
            ResetNeeded: Before the first `reset`.
        """
        if self._state is None:
            raise error.ResetNeeded(f"{type(self).__name__} must be reset before it is used")
        return self._state

    @property
    def legal(self) -> Tensor | None:
        """Which actions are legal now, (E, n) or (E, slots, n); None when all are."""
        return self._legal[0]

    def reset(
        self,
        *,
        seed: Seed = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode in every environment, or where `options["reset_mask"]` is True.

        Args:
            seed: An int s seeds environment i with s + i; a list gives each its own seed, None
                in it continues that environment's stream, as None does for all.
            options: `{"reset_mask": bool array or tensor of shape (E,)}` or nothing.

        Returns:
            Observation and infos (empty).
        """
        mask = read_reset_mask(options, self.num_envs, self.device)
        if mask is not None and self._state is None:
            raise error.ResetNeeded("the first reset must be of all environments, got a reset_mask")
        if isinstance(seed, (int, np.integer)):
            self._np_random, self._np_random_seed = seeding.np_random(int(seed))
        begins = torch.ones_like(self._ended) if mask is None else mask
        self._streams.seed(seed, begins, lambda n: self.np_random.integers(2**62, size=n))
        if mask is None:
            self._state = self._begin(self._streams.rng(0))
            self._return = torch.zeros_like(self._return)
        else:
            self._state = self._restart(self.state, self._rows(mask))[0]
        self._ended = self._ended & ~begins
        self._ended_rows = self._rows(self._ended)
        observation = self._observe(self._state)
        self._remember(observation)
        self._viewer.show(self._frame, self.num_envs)
        return self._exporter.observation(observation), {}

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """Let every environment take one step.

        Args:
            actions: One action for each environment.

        Returns:
            Observation, reward (E,), terminated (E,), truncated (E,) and infos.

        Raises:
            ResetNeeded: Before the first `reset`, or in DISABLED mode where an episode has ended.
            ValueError: For an impossible action (on CPU), naming environment and value.
        """
        state, rows = self.state, self._ended_rows
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._refuse_ended(rows)
            rows = None
        idle = None if rows is None else self._ended
        action = self._reader.read(actions, idle, self._legal, self._actors)
        elapsed = state["elapsed"] + 1
        following, reward, terminated, truncated = self.transition(
            state, action, self._streams.rng(elapsed)
        )
        state = {**following, "elapsed": elapsed}
        if self.max_episode_steps is not None:
            late = elapsed >= self.max_episode_steps
            truncated = late if truncated is None else truncated | late
        # On bools `>` is "and not": what has terminated is not truncated as well.
        truncated = torch.zeros_like(terminated) if truncated is None else truncated > terminated
        if rows is not None:  # NEXT_STEP: these environments begin an episode instead
            self._streams.next_episode(self._ended)
            state = self._restart(state, rows)[0]
            reward = fill_rows(reward, rows, 0.0)
            terminated, truncated = (
                fill_rows(terminated, rows, False),
                fill_rows(truncated, rows, False),
            )
        self._return = self._return + reward
        ended = terminated | truncated
        rows = self._rows(ended)
        infos = self._infos(state, ended, rows)
        observation = self._observe(state)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if rows is not None or self._exporter.is_torch:
                self._exporter.add_final(infos, observation, ended)
            if rows is not None:
                self._streams.next_episode(ended)
                state, observation = self._restart(state, rows, observation)
                ended, rows = torch.zeros_like(ended), None
        self._state, self._ended, self._ended_rows = state, ended, rows
        self._remember(observation)
        self._viewer.show(self._frame, self.num_envs)
        return (
            self._exporter.observation(observation),
            self._exporter.reward(reward),
            self._exporter.flags(terminated),
            self._exporter.flags(truncated),
            infos,
        )

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw all environments: a tuple of uint8 arrays (height, width, 3), or None.

        Raises:
            ValueError: Without a render mode.
        """
        return self._viewer.arrays(self._frame, self.num_envs)

    def picture(self, env: int = 0) -> Image.Image:
        """Draw one environment, whatever the render mode.

        Returns:
            The frame; `info["places"]` tells at which pixel each entity stands, by group and
            slot, where the task's drawing marks them (`Canvas.mark`).
        """
        return self._frame(env)

    def observation(self) -> dict[str, Any]:
        """Return the current observation again, for instance after `set_state`."""
        return self._exporter.observation(self._observe(self.state))

    def get_state(self) -> dict[str, Any]:
        """Return everything that the future depends on, as tensors; `set_state` continues there."""
        return {
            "streams": self._streams.get_state(),
            "ended": self._ended.clone(),
            "return": self._return.clone(),
            "state": {key: value.clone() for key, value in self.state.items()},
        }

    def set_state(self, content: Mapping[str, Any]) -> None:
        """Continue exactly where `get_state` was called, on this or another machine.

        Raises:
            ValueError: When it belongs to another number of environments.
        """
        if len(content["ended"]) != self.num_envs:
            raise ValueError(
                f"state must hold num_envs={self.num_envs} environments, "
                f"got {len(content['ended'])}"
            )
        self._streams.set_state(content["streams"])
        self._ended = content["ended"].to(self.device, copy=True)
        self._return = content["return"].to(self.device, copy=True)
        self._state = {k: v.to(self.device, copy=True) for k, v in content["state"].items()}
        self._owned = {}
        self._ended_rows = self._rows(self._ended)
        self._remember(self._observe(self._state))

    def close_extras(self, **_: Any) -> None:
        """Close the window, if there is one."""
        self._viewer.close()

    # How it works ---------------------------------------------------------------------------

    def _begin(self, rng: Rng) -> State:
        """Draw the first state of some episodes, slots in random order, clock at 0."""
        state = self.initial(rng)
        if self.shuffle_slots:
            state = shuffle_slots(state, self.groups, rng)
        elapsed = torch.zeros(len(rng), dtype=torch.int64, device=self.device)
        return {**state, "elapsed": elapsed}

    def _refuse_ended(self, rows: Tensor | None) -> None:
        if rows is not None and self.device.type == "cpu":
            raise error.ResetNeeded(
                "step must not follow the end of an episode in DISABLED mode, got it in env "
                f"{int(rows[0])} ({len(rows)} in all); call "
                'reset(options={"reset_mask": terminated | truncated}) first'
            )

    def _rows(self, mask: Tensor) -> Tensor | None:
        """Return what `_restart` works on: indices or None on a CPU, elsewhere the mask itself.

        To count or index would wait for the device.
        """
        if self.device.type != "cpu":
            return mask
        rows = mask.nonzero().squeeze(1)
        return rows if len(rows) else None

    def _restart(
        self, state: State, rows: Tensor | None, observation: State | None = None
    ) -> tuple[State, State]:
        """Begin an episode in some rows; also replace their observation if one is given."""
        if rows is None:
            return state, observation or {}
        fresh = self._begin(self._streams.rng(0, None if rows.dtype == torch.bool else rows))
        self._return = fill_rows(self._return, rows, 0.0)
        if observation is not None:
            observation = merge_rows(observation, self._observe(fresh), rows)
        self._owned = merge_rows(state, fresh, rows, self._owned)
        return self._owned, observation or {}

    def _observe(self, state: State) -> State:
        """Observe, fill in full masks, and make sure that nothing is shared with the state."""
        observation = dict(self.observe(state))
        owned = {value.untyped_storage().data_ptr() for value in state.values()}
        for key, value in observation.items():
            if value.untyped_storage().data_ptr() in owned:
                observation[key] = value.clone(memory_format=torch.contiguous_format)
            elif not value.is_contiguous():
                observation[key] = value.contiguous()
        rows = len(state["elapsed"])
        for group in self.groups:
            key = f"{group.name}_mask"
            if key not in observation:
                shape = (rows, group.slots)
                observation[key] = torch.ones(shape, dtype=torch.bool, device=self.device)
        return observation

    def _remember(self, observation: State) -> None:
        """Keep which actions are legal, out of reach of a caller who edits the observation."""
        legal, key = legal_actions(self.single_action_space, observation)
        actors = self._reader.actors(observation)
        self._legal = (None if legal is None else legal.clone(), key)
        self._actors = None if actors is None else actors.clone()
        self._sampler.legal = self._legal[0]

    def _infos(self, state: State, ended: Tensor, rows: Tensor | None) -> dict[str, Any]:
        """Report score and success where an episode ended; see the class docstring."""
        if rows is None and not self._exporter.is_torch:
            return {}
        # score = (return - random) / (reference - random)
        span = self.reference_return - self.random_return
        score = self._return * (1.0 / span) + (-self.random_return / span)
        infos = self._exporter.infos("score", score, ended)
        success = self.success(state)
        return infos if success is None else infos | self._exporter.infos("success", success, ended)

    def _frame(self, env: int) -> Image.Image:
        return self.render_frame({key: value[env].cpu() for key, value in self.state.items()})
