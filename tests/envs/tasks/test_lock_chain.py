from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from entity_encoder.envs.tasks.lock_chain import CODES, GEM, NOTHING, LockChain, _distinct
from entity_encoder.envs.vector import EntityVectorEnv
from tests.envs.tasks.play import agrees, best_returns, first_returns, place, random, reference


def lay_out(env: LockChain) -> None:
    """Place the chain 9 -> 5 -> 7 -> gem in slots 1, 4, 2 and the dead end 9 -> 3 in slot 0."""
    place(
        env,
        held=[9],
        lock=[[9, 9, 7, NOTHING, 5]],
        content=[[3, 5, GEM, NOTHING, 7]],
        solution=[[0, 1, 1, 0, 1]],
    )


def small() -> LockChain:
    return LockChain(1, max_chain=3, max_branches=2, max_branch_length=1)


def bits(code: int) -> list[float]:
    return [1.0 if code & 2**bit else -1.0 for bit in range(8)]


def test_boxes_show_lock_and_content_and_the_agent_its_key() -> None:
    env = small()
    lay_out(env)
    observation = env.observation()
    assert observation["agent"].tolist() == [[bits(9)]]
    assert observation["box_mask"].tolist() == [[1, 1, 1, 0, 1]]
    expected = [
        [*bits(9), *bits(3), 0],
        [*bits(9), *bits(5), 0],
        [*bits(7), *[0] * 8, 1],
        [0] * 17,
        [*bits(5), *bits(7), 0],
    ]
    assert observation["box"].tolist() == [expected]


def test_the_chain_leads_to_the_gem() -> None:
    env = small()
    lay_out(env)
    observation, reward, terminated, _, _ = env.step([1])
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])
    assert observation["agent"].tolist() == [[bits(5)]]
    assert observation["box_mask"].tolist() == [[1, 0, 1, 0, 1]]
    assert not observation["box"][0, 1].any()
    with pytest.raises(ValueError, match="action must point at a present box, got 1 in env 0"):
        env.step([1])
    _, reward, terminated, _, _ = env.step([4])
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [False])
    _, reward, terminated, truncated, _ = env.step([2])
    assert (reward.tolist(), terminated.tolist()) == ([1.0], [True])
    assert not truncated.any()


@pytest.mark.parametrize(
    ("slot", "left"),
    [
        (0, [0, 1, 1, 0, 1]),  # it opens, but key 3 fits nowhere
        (4, [1, 1, 1, 0, 1]),  # its lock does not match
        (2, [1, 1, 1, 0, 1]),  # nor does that of the gem
    ],
)
def test_a_dead_end_or_a_wrong_box_ends_with_nothing(slot: int, left: list[int]) -> None:
    env = small()
    lay_out(env)
    observation, reward, terminated, _, _ = env.step([slot])
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [True])
    assert observation["box_mask"].tolist() == [left]


def test_a_branch_of_two_can_be_followed_to_its_end() -> None:
    env = LockChain(1, max_chain=2, max_branches=1, max_branch_length=2)
    place(
        env,
        held=[6],
        lock=[[6, 8, 6, 2]],
        content=[[2, GEM, 8, 4]],
        solution=[[0, 1, 1, 0]],
    )
    _, _, terminated, _, _ = env.step([0])
    assert not terminated.any()
    assert env.reference_policy(env.state).tolist() == [3]  # lost, but it still matches
    _, reward, terminated, _, _ = env.step([3])
    assert (reward.tolist(), terminated.tolist()) == ([0.0], [True])


def pairs(env: LockChain) -> list[list[tuple[int, int, bool]]]:
    """Return (lock, content, on the chain) of the boxes of each environment."""
    state = env.state
    return [
        [box for box in zip(*columns, strict=True) if box[0] != NOTHING]
        for columns in zip(
            state["lock"].tolist(),
            state["content"].tolist(),
            state["solution"].tolist(),
            strict=True,
        )
    ]


def test_layouts_are_a_chain_and_dead_ends_with_distinct_keys() -> None:
    env = LockChain(400, max_chain=4, min_chain=2, max_branches=5, min_branches=1,
                    max_branch_length=3, min_branch_length=1)  # fmt: skip
    env.reset(seed=1)
    for row, boxes in enumerate(pairs(env)):
        held = int(env.state["held"][row])
        keys = [content for _, content, _ in boxes if content != GEM]
        assert len({held, *keys}) == len(boxes)  # all differ; one box holds the gem
        chain = [held]
        while chain[-1] != GEM:
            chain += [c for lock, c, solution in boxes if solution and lock == chain[-1]]
        assert 2 <= len(chain) - 1 == sum(solution for *_, solution in boxes) <= 4
        others = {content: lock for lock, content, solution in boxes if not solution}
        ends = set(others) - set(others.values())
        assert 1 <= len(ends) <= 5
        for key in ends:
            length = 0
            while key in others:
                key, length = others[key], length + 1
            assert 1 <= length <= 3
            assert key in chain[:-1]


def test_lengths_starts_and_counts_are_uniform() -> None:
    env = LockChain(6000)
    env.reset(seed=0)
    there = env.state["lock"] != NOTHING
    chain = (env.state["solution"] & there).sum(1)
    boxes = there.sum(1)
    assert ((torch.bincount(chain)[1:] - 2000).abs() <= 4 * (6000 * 2 / 9) ** 0.5).all()
    assert agrees(boxes.double(), 2.0 + 1.5 * 1.5)  # mean chain, mean branches of mean length
    # Which of three boxes a branch stands beside: for one branch of length 1 each is as likely.
    env = LockChain(3000, min_chain=3, max_branches=1, min_branches=1, max_branch_length=1)
    env.reset(seed=0)
    counts = dict.fromkeys(range(3), 0)
    for row, layout in enumerate(pairs(env)):
        (start,) = (lock for lock, _, solution in layout if not solution)
        key, depth = int(env.state["held"][row]), 0
        while key != start:
            (key,) = (content for lock, content, solution in layout if solution and lock == key)
            depth += 1
        counts[depth] += 1
    assert all(abs(count - 1000) <= 4 * (3000 * 2 / 9) ** 0.5 for count in counts.values())


def test_ranks_among_what_is_left_become_a_draw_without_replacement() -> None:
    # With 256 items and n = 2 the pairs of ranks and the pairs of different codes are as many.
    ranks = torch.cartesian_prod(torch.arange(256), torch.arange(255))
    codes = _distinct(ranks)
    assert (codes[:, 0] != codes[:, 1]).all()
    assert len(torch.unique(codes[:, 0] * 256 + codes[:, 1])) == 256 * 255
    assert _distinct(torch.tensor([[3, 3, 3, 0, 3]])).tolist() == [[3, 4, 5, 0, 7]]


def test_all_codes_can_be_in_use_at_once() -> None:
    env = LockChain(2, max_chain=64, min_chain=64, max_branches=64, min_branches=64,
                    max_branch_length=3, min_branch_length=3)  # fmt: skip
    observation, _ = env.reset(seed=0)
    assert observation["box_mask"].shape == (2, 256)
    for row, layout in enumerate(pairs(env)):
        keys = {int(env.state["held"][row]), *(content for _, content, _ in layout)} - {GEM}
        assert keys == set(range(CODES))
    assert first_returns(env, reference).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_branches": 0},
        {"max_chain": 1, "max_branches": 2, "max_branch_length": 1},
        {"max_chain": 2, "min_chain": 2, "max_branches": 2, "min_branches": 2},
    ],
)
def test_the_optimum_is_the_best_of_all_sequences_of_boxes(options: dict[str, Any]) -> None:
    env = LockChain(5, **options)
    env.reset(seed=2)
    best = best_returns(env, env.capacity)
    assert best.tolist() == env.optimum(env.state).tolist() == [1.0] * 5


def matching(env: EntityVectorEnv) -> Tensor:
    """Pick any box whose lock matches the key in hand."""
    matches = env.state["lock"] == env.state["held"][:, None]
    tickets = np.random.default_rng(int(env.state["held"].sum())).random(matches.shape)
    return torch.where(matches, torch.from_numpy(tickets), -1.0).argmax(1)


def expected_matching(options: dict[str, int]) -> float:
    """Weigh all ways to put branches beside the boxes of the chain.

    Of the boxes with one lock the right one is picked with probability 1 / (1 + branches there).
    """
    cases = []
    for chain in range(options.get("min_chain", 1), options.get("max_chain", 3) + 1):
        for count in range(options.get("min_branches", 0), options.get("max_branches", 3) + 1):
            starts = list(product(range(chain), repeat=count))
            right = (prod(1 / (1 + s.count(box)) for box in range(chain)) for s in starts)
            cases.append(sum(right) / len(starts))
    return float(np.mean(cases))


@pytest.mark.parametrize(
    ("options", "any_box", "any_match"),
    [
        ({}, 0.232, 0.501),
        ({"min_chain": 3, "min_branches": 3}, 0.0042, 0.167),
        ({"max_chain": 6, "min_chain": 6, "min_branches": 3}, 0.00001, 0.146),
        ({"min_chain": 3, "max_branches": 8, "min_branches": 8}, 0.0004, 0.026),
    ],
)
def test_rules_return_what_is_stated(
    options: dict[str, int], any_box: float, any_match: float
) -> None:
    env = LockChain(4000, **options)
    assert env.random_return == pytest.approx(any_box, rel=0.03, abs=5e-6)
    assert agrees(first_returns(env, random), env.random_return, slack=0.001)
    assert expected_matching(options) == pytest.approx(any_match, abs=0.0005)
    assert agrees(first_returns(env, matching), any_match, slack=0.0005)
    assert first_returns(env, reference).eq(1.0).all()


def test_random_return_weighs_all_numbers_of_boxes() -> None:
    # One chain of 2; none, one or two branches of 1 or 2 boxes: n boxes, right with 1 / n(n - 1).
    env = LockChain(1, max_chain=2, min_chain=2, max_branches=2)
    none, one, two = 1 / 2, (1 / 6 + 1 / 12) / 2, (1 / 12 + 2 / 20 + 1 / 30) / 4
    assert env.random_return == pytest.approx((none + one + two) / 3)
