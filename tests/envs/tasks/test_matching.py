from itertools import permutations

import pytest
import torch
from torch import Tensor

from entity_encoder.envs.tasks.matching import best_matching, greedy_matching


def total(cost: Tensor, column: Tensor) -> Tensor:
    return cost.gather(2, column[:, :, None]).sum((1, 2))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
def test_best_matching_is_the_least_of_all_permutations(n: int) -> None:
    cost = torch.randn(40, n, n, generator=torch.Generator().manual_seed(n))
    cost[1] = 0.5  # all alike
    cost[2] = (cost[2] * 2).round()  # ties
    cost[3] += 1e3
    every = torch.tensor(list(permutations(range(n))))  # (n!, n)
    rows = torch.arange(n)
    least = cost[:, rows, every].sum(2).amin(1)
    torch.testing.assert_close(total(cost, best_matching(cost)), least)


def test_best_matching_of_large_sets_cannot_be_bettered_by_exchanges() -> None:
    cost = torch.rand(5, 23, 23, generator=torch.Generator().manual_seed(0)).double()
    column = best_matching(cost)
    assert (column.sort(1).values == torch.arange(23)).all()
    chosen = cost.gather(1, column[:, None].expand(-1, 23, -1))  # row i at the column of row j
    own = chosen.diagonal(dim1=1, dim2=2)
    # Exchanges along any cycle: no closed walk over the differences may gain. Floyd and Warshall.
    change = chosen - own[:, None]
    for k in range(23):
        change = torch.minimum(change, change[:, :, k, None] + change[:, None, k])
    assert (change.diagonal(dim1=1, dim2=2) > -1e-9).all()


def test_environments_are_matched_independently() -> None:
    cost = torch.rand(9, 7, 7, generator=torch.Generator().manual_seed(4))
    apart = torch.cat([best_matching(one[None]) for one in cost])
    assert torch.equal(best_matching(cost), apart)


def test_greedy_matching_takes_the_least_cost_first() -> None:
    cost = torch.tensor([[[2.0, 1.0, 9.0], [5.0, 2.0, 8.0], [3.0, 4.0, 7.0]]])
    assert greedy_matching(cost).tolist() == [[1, 2, 0]]  # 1, then 3, then what is left: 8
    assert best_matching(cost).tolist() == [[0, 1, 2]]  # 2 + 2 + 7
