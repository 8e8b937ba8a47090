"""Actions of a batch of environments: read them, refuse impossible ones, sample possible ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.spaces import PerEntity, SelectEntity

__all__ = ["ActionReader", "LegalSampler", "legal_actions", "mask_shape"]


def legal_actions(
    space: spaces.Space[Any], observation: dict[str, Tensor]
) -> tuple[Tensor | None, str]:
    """Find out which actions an observation allows.

    Args:
        space: Action space of one environment.
        observation: Batched observation.

    Returns:
        A mask of shape (E, n), or (E, slots, n) for `PerEntity`, True = legal, or None when
        everything is; and the key it comes from.
    """
    if "action_mask" in observation:
        return observation["action_mask"], "action_mask"
    if isinstance(space, SelectEntity):
        return observation[f"{space.group}_mask"], f"{space.group}_mask"
    return None, ""


def mask_shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Return the shape of the mask over a space's actions: (n,), or (slots, n) for several.

    Raises:
        ValueError: For a space that has none.
    """
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete) and (space.nvec == space.nvec.flat[0]).all():
        return (len(space.nvec), int(space.nvec.flat[0]))
    raise ValueError(
        "action_mask must belong to a Discrete space or a MultiDiscrete one with equal sizes, "
        f"got {space}"
    )


class LegalSampler:
    """Replace a space's `sample` by one that draws among the currently legal actions.

    Without it the usual loop `env.step(env.action_space.sample())` would soon point at an absent
    entity. The environment assigns `legal` after each step. A mask or probability passed by the
    caller goes to the space's own `sample`.

    Args:
        space: Action space of one environment or of a batch; it is changed in place.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.legal: Tensor | None = None
        # An attribute of this one instance, so that the space keeps its type.
        setattr(space, "sample", self)  # noqa: B010

    def __call__(self, mask: Any = None, probability: Any = None) -> Any:
        """Draw an action; 0 where nothing is legal."""
        if self.legal is None or mask is not None or probability is not None:
            options = {} if probability is None else {"probability": probability}
            if isinstance(self.space, spaces.MultiDiscrete) and isinstance(mask, np.ndarray):
                mask = tuple(mask)  # an action mask as observed, (slots, n)
            return type(self.space).sample(self.space, mask, **options)
        legal = self.legal.cpu().numpy()  # (E, n), (E, slots, n) or, for one environment, less
        lottery = self.space.np_random.random(legal.shape)
        assert self.space.dtype is not None
        return np.where(legal, lottery, -1.0).argmax(-1).astype(self.space.dtype)[()]


class ActionReader:
    """Turn what the caller passes to `step` into a tensor that the task can trust.

    Args:
        space: Action space of one environment: Discrete, MultiDiscrete or a rank-1 Box.
        num_envs: Number of environments, E.
        device: Where the tensor shall be.

    Raises:
        ValueError: For any other space.
    """

    def __init__(self, space: spaces.Space[Any], num_envs: int, device: torch.device) -> None:
        self._space = space
        self._device = device
        self._continuous = isinstance(space, spaces.Box)
        flat = isinstance(space, spaces.Discrete) and space.start == 0
        several = isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1
        if not (flat or several or (self._continuous and len(space.shape or ()) == 1)):
            raise ValueError(
                "action_space must be Discrete from 0, MultiDiscrete or Box with one axis, "
                f"got {space}"
            )
        self._shape = (num_envs, *(space.shape or ()))
        if isinstance(space, spaces.Box):
            self._low = torch.as_tensor(space.low).to(device)
            self._high = torch.as_tensor(space.high).to(device)
        else:
            counts: Any = space
            sizes = np.atleast_1d(counts.nvec if several else np.int64(counts.n))
            self._sizes = torch.as_tensor(sizes.astype(np.int64)).to(device)
            self._size = int(sizes[0]) if (sizes == sizes[0]).all() else None

    def read(
        self,
        actions: Any,
        idle: Tensor | None,
        legal: tuple[Tensor | None, str],
        present: Tensor | None,
    ) -> Tensor:
        """Convert and check.

        On CUDA values are not looked at, because that would wait for the device; what lies
        outside the space is clamped into it.

        Args:
            actions: Array, tensor or list, shape (E,), (E, slots) or (E, k).
            idle: Environments whose action is ignored, shape (E,), or None for none.
            legal: Mask of legal actions and where it comes from, see `legal_actions`.
            present: Actors that are present, (E, slots); the choice of others is ignored.

        Returns:
            int64 or float32 tensor on the environment's device; 0 where it is ignored.

        Raises:
            ValueError: Naming environment and value.
        """
        tensor = torch.as_tensor(actions).to(self._device)
        if tensor.shape != self._shape:
            raise ValueError(f"actions must have shape {self._shape}, got {tuple(tensor.shape)}")
        if self._continuous:
            tensor = tensor.float()
        elif tensor.dtype.is_floating_point or tensor.dtype == torch.bool:
            raise ValueError(f"actions must be whole numbers, got dtype {tensor.dtype}")
        else:
            tensor = tensor.long()
        if idle is not None:
            tensor = tensor.masked_fill(idle.view(-1, *[1] * (tensor.dim() - 1)), 0)
        if present is not None:
            tensor = tensor.masked_fill(~present, 0)
        if self._device.type != "cpu":
            return self._clamped(tensor)
        self._check_range(tensor)
        if legal[0] is not None:
            self._check_legal(tensor, legal[0], idle, present, legal[1])
        return tensor

    def _clamped(self, tensor: Tensor) -> Tensor:
        if self._continuous:
            return tensor.clamp(self._low, self._high)
        return torch.minimum(tensor.clamp(min=0), self._sizes - 1)

    def _check_range(self, tensor: Tensor) -> None:
        if self._continuous:
            outside = ~((tensor >= self._low) & (tensor <= self._high))  # also True for NaN
            if bool(outside.any()):
                env, column = outside.nonzero()[0].tolist()
                low, high = float(self._low[column]), float(self._high[column])
                raise ValueError(
                    f"action must lie in [{low:g}, {high:g}], got {float(tensor[env, column]):g} "
                    f"at index {column} in env {env}"
                )
            return
        low, high = (int(value) for value in tensor.aminmax()) if tensor.numel() else (0, 0)
        if low >= 0 and self._size is not None and high < self._size:
            return
        outside = (tensor < 0) | (tensor >= self._sizes)
        if bool(outside.any()):
            env, *slot = outside.nonzero()[0].tolist()
            size = int(self._sizes[slot[0] if slot else 0])
            where = f"env {env}" + (f", slot {slot[0]}" if slot else "")
            raise ValueError(
                f"action must be in 0, ..., {size - 1}, got {int(tensor[(env, *slot)])} in {where}"
            )

    def _check_legal(
        self, tensor: Tensor, legal: Tensor, idle: Tensor | None, present: Tensor | None, key: str
    ) -> None:
        allowed = legal.gather(-1, tensor.unsqueeze(-1)).squeeze(-1)
        if idle is not None:
            allowed = allowed | idle.view(-1, *[1] * (tensor.dim() - 1))
        if present is not None:
            allowed = allowed | ~present
        if bool(allowed.all()):
            return
        env, *slot = (~allowed).nonzero()[0].tolist()
        where = f"env {env}" + (f", slot {slot[0]}" if slot else "")
        choices = legal[(env, *slot)].nonzero().flatten().tolist()
        absent = isinstance(self._space, SelectEntity) and key != "action_mask"
        rule = f"point at a present {self._space.group}" if absent else "be legal"  # type: ignore[attr-defined]
        raise ValueError(
            f"action must {rule}, got {int(tensor[(env, *slot)])} in {where}; "
            f"legal by {key!r}: {choices}"
        )

    def actors(self, observation: dict[str, Tensor]) -> Tensor | None:
        """Return the mask of the entities that act, (E, slots), or None without `PerEntity`."""
        if isinstance(self._space, PerEntity):
            return observation[f"{self._space.group}_mask"]
        return None
