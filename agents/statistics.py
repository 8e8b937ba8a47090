"""Say how sure a mean is: standard deviation and Student's 95 % confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Mean", "mean_of", "t_quantile"]

# Student's t for a two-sided 95 % interval at 1 to 9 degrees of freedom; the expansion below is
# exact to three digits beyond them.
T_975 = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)
Z_975 = 1.959964


@dataclass(frozen=True)
class Mean:
    """A mean and how sure it is.

    Args:
        mean: The arithmetic mean; NaN of nothing.
        sd: Standard deviation of the sample (n - 1); NaN below two values.
        low: Lower end of the 95 % confidence interval of the mean; NaN below two values.
        high: Its upper end.
        count: Number of values.
    """

    mean: float
    sd: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.count < 2:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} (95 %: {self.low:.3f} to {self.high:.3f}, sd {self.sd:.3f})"


def mean_of(values: Sequence[float] | np.ndarray) -> Mean:
    """Summarise independent values, (n,)."""
    x = np.asarray(values, dtype=np.float64)
    nan = float("nan")
    if x.size < 2:
        return Mean(float(x[0]) if x.size else nan, nan, nan, nan, x.size)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    half = t_quantile(x.size - 1) * sd / math.sqrt(x.size)
    return Mean(mean, sd, mean - half, mean + half, x.size)


def t_quantile(degrees: int) -> float:
    """Return the .975 quantile of Student's t distribution.

    Beyond nine degrees of freedom by its expansion in 1 / degrees (Abramowitz and Stegun 26.7.5).

    Raises:
        ValueError: For no degrees of freedom.
    """
    if degrees < 1:
        raise ValueError(f"degrees must be at least 1, got {degrees}; a mean needs two values")
    if degrees <= len(T_975):
        return T_975[degrees - 1]
    z = Z_975
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
