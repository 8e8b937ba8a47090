import math

import numpy as np
import pytest

from entity_encoder.agents.ratings import PRIOR, expected_score, fit_ratings


def test_two_players_are_as_far_apart_as_elo_s_formula_says() -> None:
    # 30 : 10 with half a win granted to both; the logarithm of the odds, times 400.
    ratings = fit_ratings(np.array([[0, 10], [30, 0]]))
    assert ratings[0] == 1000.0
    assert ratings[1] == pytest.approx(1000 + 400 * math.log10((30 + PRIOR) / (10 + PRIOR)))


def test_the_fit_balances_wins_and_expected_wins_of_everybody() -> None:
    # The likelihood is stationary exactly there.
    wins = np.random.default_rng(0).integers(0, 30, (6, 6)).astype(float)
    np.fill_diagonal(wins, 0)
    ratings = fit_ratings(wins)
    for i in range(6):
        expected = sum(
            (wins[i, j] + wins[j, i] + 2 * PRIOR) * expected_score(ratings[i], ratings[j])
            for j in range(6)
            if j != i
        )
        assert expected == pytest.approx(wins[i].sum() + 5 * PRIOR, rel=1e-5)


def test_known_strengths_are_found_again_over_a_chain_of_games() -> None:
    true = np.array([1000.0, 1100.0, 1250.0, 1200.0])
    wins = np.zeros((4, 4))
    for i in range(3):  # everybody meets the next one only
        share = expected_score(true[i], true[i + 1])
        wins[i, i + 1], wins[i + 1, i] = 1e6 * share, 1e6 * (1 - share)
    np.testing.assert_allclose(fit_ratings(wins), true, atol=0.1)


def test_who_never_lost_still_has_a_finite_rating() -> None:
    ratings = fit_ratings(np.array([[0, 0], [64, 0]]))
    assert 1600 < ratings[1] < 2000


def test_the_order_of_players_does_not_matter() -> None:
    wins = np.array([[0.0, 3, 9], [7, 0, 4], [2, 8, 0]])
    order = [0, 2, 1]
    np.testing.assert_allclose(fit_ratings(wins)[order], fit_ratings(wins[np.ix_(order, order)]))


def test_the_script_alone_has_its_rating() -> None:
    assert fit_ratings(np.zeros((1, 1))).tolist() == [1000.0]


def test_players_without_a_link_to_the_first_are_refused() -> None:
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[2, 3] = 5
    with pytest.raises(ValueError, match=r"must have met the first.* no such games of number 2"):
        fit_ratings(wins)
