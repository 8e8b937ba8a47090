"""Elo ratings from a table of who beat whom how often."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["ANCHOR_RATING", "expected_score", "fit_ratings"]

ANCHOR_RATING = 1000.0
SCALE = 400.0  # ten times as likely to win as to lose: Elo's convention
PRIOR = 0.5  # wins that each of two opponents is granted, so that ratings stay finite
ROUNDS = 10_000


def fit_ratings(wins: np.ndarray) -> np.ndarray:
    """Fit the ratings under which all results together are likeliest.

    The order of the games does not matter, unlike in updates after each game. Fitted by the
    iteration of Hunter (2004) for the model of Bradley and Terry (1952).

    Args:
        wins: Games that i won against j, (n, n); draws may count half for both.

    Returns:
        Ratings (n,); the first is 1000.

    Raises:
        ValueError: When somebody has no chain of opponents to the first, whose rating is fixed.
    """
    wins = np.asarray(wins, dtype=np.float64)
    met = (wins + wins.T) > 0
    linked = np.linalg.matrix_power(np.eye(len(wins)) + met, len(wins))[0] > 0
    if not linked.all():
        raise ValueError(
            f"everybody must have met the first, or somebody who has, got no such games of number "
            f"{int(linked.argmin())}"
        )
    wins = wins + PRIOR * met
    games = wins + wins.T
    strength = np.ones(len(wins))
    for _ in range(ROUNDS):
        met_strength = games / (strength[:, None] + strength)
        fitted = wins.sum(1) / np.maximum(met_strength.sum(1), 1e-300) if met.any() else strength
        fitted = fitted / fitted[0]
        done = np.allclose(fitted, strength, rtol=1e-9, atol=0.0)
        strength = fitted
        if done:
            break
    return ANCHOR_RATING + SCALE * np.log10(strength)


def expected_score(rating: float, other: float) -> float:
    """Return how often the first is expected to win against the other."""
    return 1.0 / (1.0 + math.pow(10.0, (other - rating) / SCALE))
