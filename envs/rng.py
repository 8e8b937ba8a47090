"""Random numbers that depend on the environment's seed and time, and on nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["Rng", "seeds_to_keys"]

# Constants of the splitmix64 generator (Steele, Lea and Flood, 2014), as signed 64-bit integers.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_STEP = 0xD1342543DE82EF95 - 2**64  # another odd number (Steele and Vigna, 2021)


def _mix(z: Tensor) -> Tensor:
    """Scramble int64 numbers in place, after the finaliser of splitmix64.

    Torch shifts int64 arithmetically: each shift drags copies of the sign into the upper bits.
    That costs the sign bit of the result, which is always 0, and saves a mask for every shift.
    """
    z ^= z >> 30
    z *= _FIRST
    z ^= z >> 27
    z *= _SECOND
    z ^= z >> 31
    return z


@lru_cache(maxsize=1024)
def _weyl_sequence(first: int, count: int, device: torch.device) -> Tensor:
    """Return multiples of an odd constant, int64, (count,); never to be changed."""
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return (index + 1) * _GOLDEN


def seeds_to_keys(seeds: Sequence[int]) -> Tensor:
    """Turn seeds into the int64 keys that `Rng` works with, shape (len(seeds),)."""
    wrapped = [(seed % 2**64) - 2**64 * (seed % 2**64 >= 2**63) for seed in seeds]
    return _mix(torch.tensor(wrapped, dtype=torch.int64) + _GOLDEN)


class Rng:
    """A counter-based generator: row i draws for environment i.

    Every number is a hash of (key, episode, step, index of the draw within this step). So an
    environment's trajectory does not depend on how many others there are, in which order they
    finish, or which device they live on; and nothing has to be stored to resume.

    Args:
        key: Key of each environment, int64, shape (E,); see `seeds_to_keys`.
        episode: How many episodes each environment finished since it was seeded, int64, (E,).
        step: 0 while an episode begins, then the step's number from 1 on; int64, (E,), or an int.
    """

    def __init__(self, key: Tensor, episode: Tensor, step: Tensor | int) -> None:
        self._key = key
        self._episode = episode
        self._step = step
        self._stream: Tensor | None = None
        self._drawn = 0

    def __len__(self) -> int:
        """Return the number of environments that are drawn for."""
        return self._key.shape[0]

    @property
    def device(self) -> torch.device:
        """Device on which the numbers are drawn."""
        return self._key.device

    def rows(self, where: slice) -> Rng:
        """Return the numbers that some of the environments draw alone."""
        step = self._step if isinstance(self._step, int) else self._step[where]
        return Rng(self._key[where], self._episode[where], step)

    def bits(self, *shape: int) -> Tensor:
        """Draw int64 numbers from [0, 2**63), shape (E, *shape)."""
        if self._stream is None:  # made at the first draw: most transitions need none
            self._stream = ((self._episode << 32) + self._step).mul_(_STEP).add_(self._key)[:, None]
        count = math.prod(shape)
        index = _weyl_sequence(self._drawn, count, self.device)
        self._drawn += count
        return _mix(self._stream + index).view(len(self), *shape)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Draw float32 numbers from [low, high), shape (E, *shape)."""
        unit = (self.bits(*shape) >> 39).float()  # 24 bits: exact in float32
        return unit.mul_((high - low) / 2**24).add_(low)

    def integers(self, high: int | Tensor, *shape: int, low: int = 0) -> Tensor:
        """Draw int64 numbers from low, ..., high - 1, shape (E, *shape).

        Args:
            high: Exclusive upper end, below 2**31; a tensor must broadcast against the result.
            *shape: Shape of the draw of one environment.
            low: Inclusive lower end.
        """
        return (((self.bits(*shape) >> 32) * (high - low)) >> 31) + low

    def normal(self, *shape: int) -> Tensor:
        """Draw float32 numbers of a standard normal distribution, shape (E, *shape)."""
        bits = self.bits(*shape, 2)
        unit = (bits >> 11).double().add_(0.5).mul_(2.0**-52)
        radius = unit[..., 0].log().mul_(-2.0).sqrt_()  # Box and Muller, 1958
        return (radius * unit[..., 1].mul_(2.0 * math.pi).cos_()).float()

    def permutation(self, n: int) -> Tensor:
        """Draw an order of 0, ..., n - 1, int64, shape (E, n)."""
        return self.bits(n).argsort(dim=1)
