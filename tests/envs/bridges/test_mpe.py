"""MPE2 as entities, against the state of its worlds."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("mpe2", reason="mpe2 is missing: pip install entity-encoder[envs]")

from entity_encoder.agents.environments import Environments
from entity_encoder.envs.bridges.mpe import SpreadView, TagView, make_spread, make_tag


def worlds(env: Any) -> list[Any]:
    return [copy.unwrapped.world for copy in env.copies]


def walk(env: Any, steps: int, seed: int = 3) -> Any:
    """Yield observations of a random walk, rows of all copies."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    yield observation
    for _ in range(steps):
        action = rng.integers(0, env.single_action_space.n, env.num_envs)
        observation, *_ = env.step(action)
        yield observation


@pytest.mark.parametrize("n", [1, 3, 5])
def test_spread_shows_the_world_around_each_agent(n: int) -> None:
    env = make_spread(2, n=n)
    for observation in walk(env, 7):
        assert observation in env.observation_space
        for row in range(env.num_envs):
            world = worlds(env)[row // n]
            me = world.agents[row % n]
            np.testing.assert_allclose(
                observation["self"][row, 0],
                [*me.state.p_vel, *me.state.p_pos],
                rtol=1e-5,
                atol=1e-6,
            )
            landmarks = [mark.state.p_pos - me.state.p_pos for mark in world.landmarks]
            np.testing.assert_allclose(
                observation["landmark"][row], landmarks, rtol=1e-5, atol=1e-6
            )
            others = [
                [*(other.state.p_pos - me.state.p_pos), *other.state.c]
                for other in world.agents
                if other is not me
            ]
            if n > 1:
                np.testing.assert_allclose(observation["agent"][row], others, rtol=1e-5, atol=1e-6)
                assert observation["agent_mask"][row].all()
            assert observation["landmark_mask"][row].all()
    assert ("agent" in observation) == (n > 1)


def test_limits_that_exceed_the_world_are_padding_in_the_mask() -> None:
    env = make_spread(1, n=3, num_agent_neighbors=4, num_landmark_neighbors=5)
    observation, _ = env.reset(seed=0)
    assert observation["agent_mask"].tolist() == [[1, 1, 0, 0]] * 3
    assert observation["landmark_mask"].tolist() == [[1, 1, 1, 0, 0]] * 3
    few = make_spread(1, n=5, num_agent_neighbors=2, num_landmark_neighbors=1)
    observation, _ = few.reset(seed=0)
    assert observation["agent_mask"].tolist() == [[1, 1]] * 5
    distance = np.linalg.norm(observation["landmark"][:, 0], axis=1)
    world = worlds(few)[0]
    nearest = [
        min(np.linalg.norm(m.state.p_pos - a.state.p_pos) for m in world.landmarks)
        for a in world.agents
    ]
    np.testing.assert_allclose(distance, nearest, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("prey", "adversaries"), [(1, 3), (2, 1), (3, 4)])
def test_tag_shows_both_sides_in_one_form(prey: int, adversaries: int) -> None:
    env = make_tag(1, num_good=prey, num_adversaries=adversaries, num_obstacles=5)
    for observation in walk(env, 5):
        assert observation in env.observation_space
        (world,) = worlds(env)
        for row, me in enumerate(world.agents):
            seen = {key: value[row] for key, value in observation.items()}
            assert seen["self"][0, -1] == me.adversary == (row < adversaries)
            np.testing.assert_allclose(
                seen["self"][0, :4], [*me.state.p_vel, *me.state.p_pos], rtol=1e-5, atol=1e-6
            )
            others = [other for other in world.agents if other is not me]
            for name, side in (("adversary", True), ("prey", False)):
                expected = [
                    [*(o.state.p_pos - me.state.p_pos), *([] if side else o.state.p_vel)]
                    for o in others
                    if o.adversary == side
                ]
                count = len(expected)
                mask = seen[f"{name}_mask"]
                assert mask.tolist() == [1] * count + [0] * (len(mask) - count)
                if count:
                    np.testing.assert_allclose(seen[name][:count], expected, rtol=1e-5, atol=1e-6)
                assert (seen[name][count:] == 0).all()


def test_tag_with_limited_sight_has_one_group_of_agents() -> None:
    env = make_tag(1, num_good=2, num_adversaries=3, num_agent_neighbors=6)
    observation, _ = env.reset(seed=1)
    assert [group.name for group in env.entity_schema.groups] == ["self", "landmark", "agent"]
    assert observation["agent_mask"].tolist() == [[1, 1, 1, 1, 0, 0]] * 5
    assert observation["agent"].shape == (5, 6, 4)


def test_rewards_and_ends_are_the_original_s() -> None:
    from mpe2 import simple_spread_v3

    env, original = make_spread(1, max_cycles=4), simple_spread_v3.parallel_env(max_cycles=4)
    env.reset(seed=9)
    original.reset(seed=9)
    for step in range(4):
        _, reward, terminated, truncated, _ = env.step(np.array([1, 2, 3]))
        _, theirs, *_ = original.step({"agent_0": 1, "agent_1": 2, "agent_2": 3})
        assert reward.tolist() == list(theirs.values())
        assert not terminated.any()
        assert truncated.tolist() == [step == 3] * 3


def test_the_same_seed_is_the_same_walk_over_several_episodes() -> None:
    walks = [list(walk(make_spread(2, max_cycles=3), 9)) for _ in range(2)]
    for a, b in zip(*walks, strict=True):
        np.testing.assert_array_equal(a["landmark"], b["landmark"])


def test_the_trainer_reads_it() -> None:
    envs = Environments(make_spread(2, max_cycles=2))
    envs.reset(seed=0)
    steps = [envs.step(torch.zeros(6, dtype=torch.int64)) for _ in range(3)]
    assert [bool(step.valid.all()) for step in steps] == [True, True, False]
    assert bool(steps[1].truncated.all())


@pytest.mark.parametrize("view", [SpreadView(), TagView()])
def test_another_width_names_the_versions(view: Any) -> None:
    with pytest.raises(ValueError, match=r"columns, got 11; mpe2 .* known to work: 1\.1\.1"):
        view.observe("adversary_0", np.zeros(11, np.float32))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mpe2.simple_spread_v3", None)
    with pytest.raises(ImportError, match=r'needs mpe2: pip install "entity-encoder\[envs\]"'):
        make_spread()
