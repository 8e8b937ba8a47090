from collections import deque

import torch

from entity_encoder.envs.tasks.paths import STEPS, distances


def search(goal: torch.Tensor, blocked: torch.Tensor) -> list[list[float]]:
    """Breadth-first search from the goals, one place after the other."""
    height, width = goal.shape
    far = [[float("inf")] * width for _ in range(height)]
    queue = deque((y, x) for y, x in goal.nonzero().tolist())
    for y, x in queue:
        far[y][x] = 0.0
    while queue:
        y, x = queue.popleft()
        if blocked[y, x] and not goal[y, x]:
            continue  # reached, so that the way out is known, but no way leads through
        for dx, dy in STEPS:
            if 0 <= x + dx < width and 0 <= y + dy < height and far[y + dy][x + dx] > far[y][x] + 1:
                far[y + dy][x + dx] = far[y][x] + 1.0
                queue.append((y + dy, x + dx))
    return far


def test_distances_equal_a_search_from_place_to_place() -> None:
    torch.manual_seed(0)
    blocked = torch.rand(13, 5, 7) < 0.35
    goal = torch.zeros(13, 5, 7, dtype=torch.bool)
    goal.view(13, -1)[torch.arange(13), torch.randint(35, (13,))] = True
    expected = [search(*pair) for pair in zip(goal, blocked, strict=True)]
    assert distances(goal, blocked, 40).tolist() == expected


def test_ways_that_are_too_long_are_not_found() -> None:
    goal = torch.zeros(1, 1, 6, dtype=torch.bool)
    goal[0, 0, 0] = True
    far = distances(goal, torch.zeros_like(goal), 2)
    inf = float("inf")
    assert far.tolist() == [[[0.0, 1.0, 2.0, 3.0, inf, inf]]]
