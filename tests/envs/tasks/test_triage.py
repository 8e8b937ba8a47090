from itertools import combinations

import pytest
import torch
from torch import Tensor

from entity_encoder.envs.tasks.triage import Triage, best_schedule
from entity_encoder.envs.vector import EntityVectorEnv
from tests.envs.tasks.play import agrees, best_returns, first_returns, place, random, reference


def lay_out(env: Triage) -> None:
    """Place four jobs and a hole: the best schedule does slots 3, 0 and 1, worth 2 together."""
    place(
        env,
        weight=[[0.5, 0.5, 0.0, 1.0, 0.25]],
        deadline=[[2, 3, 9, 1, 1]],
        left=[[1, 1, 0, 1, 1]],
        best=[[1, 1, 0, 1, 0]],
        total=[2.0],
    )


def test_a_job_pays_its_share_and_late_ones_leave() -> None:
    env = Triage(1, max_jobs=5)
    lay_out(env)
    observation = env.observation()
    assert observation["job"][0].tolist() == [[0.5, 2], [0.5, 3], [0, 0], [1, 1], [0.25, 1]]
    observation, reward, terminated, _, _ = env.step([0])  # slots 3 and 4 are too late now
    assert reward.tolist() == [0.25]
    assert observation["job_mask"].tolist() == [[0, 1, 0, 0, 0]]
    assert observation["job"][0, 1].tolist() == [0.5, 2.0]
    assert not terminated.any()
    for slot in (0, 2, 3):
        with pytest.raises(ValueError, match=f"action must point at a present job, got {slot}"):
            env.step([slot])
    _, reward, terminated, _, _ = env.step([1])
    assert (reward.tolist(), terminated.tolist()) == ([0.25], [True])


def test_the_reference_does_the_best_schedule_by_deadline() -> None:
    env = Triage(1, max_jobs=5)
    lay_out(env)
    done = []
    for _ in range(3):
        action = env.reference_policy(env.state)
        done.append((int(action[0]), float(env.step(action)[1][0])))
    assert done == [(3, 0.5), (0, 0.25), (1, 0.25)]


def test_optimum_is_the_best_of_all_orders() -> None:
    env = Triage(15, max_jobs=6)
    env.reset(seed=4)
    torch.testing.assert_close(best_returns(env, 6), env.optimum(env.state))


def test_the_greedy_schedule_equals_trying_all_sets() -> None:
    torch.manual_seed(0)
    weight, deadline = torch.rand(20, 7), torch.randint(1, 5, (20, 7))
    chosen = best_schedule(weight, deadline, 4)
    for row in range(20):

        def fits(jobs: tuple[int, ...], due: Tensor = deadline[row]) -> bool:
            ordered = sorted(int(due[job]) for job in jobs)
            return all(step <= when for step, when in enumerate(ordered, start=1))

        sets = [jobs for size in range(8) for jobs in combinations(range(7), size) if fits(jobs)]
        best = max(float(weight[row, list(jobs)].sum()) for jobs in sets)
        assert fits(tuple(chosen[row].nonzero().flatten().tolist()))
        assert float(weight[row, chosen[row]].sum()) == pytest.approx(best)


def heaviest(env: EntityVectorEnv) -> Tensor:
    return (env.state["weight"] * env.state["left"]).argmax(1)


def most_urgent(env: EntityVectorEnv) -> Tensor:
    late = env.state["deadline"] - env.state["weight"]  # weights below 1 decide among equals
    return late.masked_fill(~env.state["left"], torch.inf).argmin(1)


def weight_per_slack(env: EntityVectorEnv) -> Tensor:
    slack = (env.state["deadline"] - env.state["elapsed"][:, None]).clamp(min=1)
    return (env.state["weight"] / slack * env.state["left"]).argmax(1)


@pytest.mark.parametrize(
    ("max_jobs", "marks"), [(8, (0.71, 0.90, 0.95, 0.98)), (64, (0.62, 0.80, 0.88, 0.95))]
)
def test_policies_return_what_is_stated(max_jobs: int, marks: tuple[float, ...]) -> None:
    env = Triage(1000, max_jobs=max_jobs)
    policies = (random, heaviest, most_urgent, weight_per_slack)
    for policy, mark in zip(policies, marks, strict=True):
        assert agrees(first_returns(env, policy), mark, slack=0.005)  # marks have two digits
    assert abs(env.random_return - marks[0]) < 0.01
    torch.testing.assert_close(first_returns(env, reference), torch.ones(1000).double())


def test_jobs_are_drawn_as_stated() -> None:
    env = Triage(2000)
    observation, _ = env.reset(seed=0)
    mask = torch.tensor(observation["job_mask"]).bool()
    counts = torch.bincount(mask.sum(1), minlength=9)
    assert counts[4:].sum() == 2000
    assert ((counts[4:] - 400).abs() <= 4 * (2000 * 0.2 * 0.8) ** 0.5).all()
    weight, slack = torch.tensor(observation["job"]).unbind(2)
    assert 0.05 <= weight[mask].min() < 0.06
    assert 0.99 < weight[mask].max() <= 1.0
    latest = torch.where(mask, slack, 0).amax(1)
    assert (latest <= (mask.sum(1) + 1) // 2).all()
    assert slack[mask].min() == 1
