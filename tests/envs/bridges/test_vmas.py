"""VMAS as entities, against the state of its worlds."""

import contextlib
import io
import sys
from typing import Any

import pytest
import torch
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.agents.environments import Environments
from entity_encoder.envs.bridges.vmas import (
    VmasVectorEnv,
    dispersion_layout,
    make_vmas,
    spread_layout,
)


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vmas", None)
    with pytest.raises(ImportError, match="this bridge needs vmas: pip install vmas"):
        make_vmas(2)


def test_layouts_put_the_position_first() -> None:
    cut = spread_layout(3).split(torch.arange(14.0))
    assert cut["self"].tolist() == [[0, 1, 2, 3]]
    assert cut["landmark"].tolist() == [[4, 5], [6, 7], [8, 9]]
    assert cut["agent"].tolist() == [[10, 11], [12, 13]]
    assert list(spread_layout(3, obs_agents=False).groups) == ["self", "landmark"]
    assert dispersion_layout(2, n_food=3).width == 13


with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(ImportError):
    import vmas  # noqa: F401  (it imports gym, which talks)

needs_vmas = pytest.mark.skipif(
    "vmas" not in sys.modules, reason="vmas is missing: pip install vmas"
)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:vmas")


def agents_of(env: VmasVectorEnv) -> list[Any]:
    agents: list[Any] = env.vmas.agents
    return agents


@needs_vmas
def test_spread_shows_the_world_around_each_agent() -> None:
    env = make_vmas(5, "simple_spread", n_agents=3)
    observation, _ = env.reset(seed=1)
    for _ in range(4):
        agents = agents_of(env)
        for w in range(5):
            for a, me in enumerate(agents):
                row = w * 3 + a
                own = torch.cat([me.state.pos[w], me.state.vel[w]])
                torch.testing.assert_close(observation["self"][row, 0], own)
                marks = [m.state.pos[w] - me.state.pos[w] for m in env.vmas.world.landmarks]
                torch.testing.assert_close(observation["landmark"][row], torch.stack(marks))
                others = [o.state.pos[w] - me.state.pos[w] for o in agents if o is not me]
                torch.testing.assert_close(observation["agent"][row], torch.stack(others))
        observation, reward, *_ = env.step(torch.arange(15) % 9)
    assert reward.shape == (15,)
    assert observation["agent_mask"].all()
    assert observation["agent_mask"].dtype == torch.bool


@needs_vmas
def test_worlds_that_end_are_reset_together_and_the_others_go_on() -> None:
    env = make_vmas(7, "dispersion", n_agents=2, max_steps=9)
    env.reset(seed=3)
    env.step(torch.zeros(14, dtype=torch.int64))
    world = env.vmas.world
    # In worlds 2 and 5 everything has been eaten but one piece, on which an agent stands.
    for w in (2, 5):
        world.landmarks[0].eaten[w] = True
        world.landmarks[1].state.pos[w] = world.agents[0].state.pos[w]
    world.landmarks[0].eaten[3] = True
    env.vmas.steps[:] = torch.tensor([1, 2, 3, 4, 5, 6, 8.0])  # the last one's time is up
    idle = torch.zeros(14, dtype=torch.int64)
    observation, _, terminated, truncated, infos = env.step(idle)
    by_world = terminated.view(7, 2)
    assert by_world[:, 0].nonzero().flatten().tolist() == [2, 5]
    assert truncated.view(7, 2)[:, 1].nonzero().flatten().tolist() == [6]
    ended = torch.tensor([w in (2, 5, 6) for w in range(7)])
    assert torch.equal(infos["_final_obs"].view(7, 2)[:, 0], ended)
    final = infos["final_obs"]
    assert final["food"].view(7, 2, 2, 3)[2, :, :, 2].all()  # all eaten, in the true last one
    going = (~ended).repeat_interleave(2)
    for key, value in observation.items():
        torch.testing.assert_close(value[going], final[key][going], rtol=0, atol=0)
    fresh = observation["food"].view(7, 2, 2, 3)
    assert not fresh[ended][..., 2].any()
    assert fresh[3, :, 0, 2].all()  # eaten in a world that goes on
    assert not torch.allclose(fresh[ended][..., :2], final["food"].view(7, 2, 2, 3)[ended][..., :2])
    assert env.vmas.steps.tolist() == [2, 3, 0, 5, 6, 0, 0]


@needs_vmas
def test_a_world_that_goes_on_moves_as_if_nothing_had_been_reset() -> None:
    """With and without a reset elsewhere, world 0 of a deterministic scenario is the same."""
    walks = []
    for steps in ([0, 0], [0, 98]):  # world 1's time is up in the second step, or not
        env = make_vmas(2, "simple_spread", n_agents=2, max_steps=100)
        env.reset(seed=5)
        env.vmas.steps[:] = torch.tensor(steps, dtype=torch.float32)
        walk = []
        for step in range(6):
            observation, reward, *_ = env.step(torch.full((4,), 1 + step % 4))
            walk.append((observation["self"][:2], observation["landmark"][:2], reward[:2]))
        walks.append(walk)
    for a, b in zip(*walks, strict=True):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=0)


@needs_vmas
def test_the_same_seed_is_the_same_walk() -> None:
    walks = []
    for _ in range(2):
        env = make_vmas(3, "simple_spread", max_steps=2)
        walk = [env.reset(seed=11)[0]["landmark"]]
        walk += [env.step(torch.zeros(9, dtype=torch.int64))[0]["landmark"] for _ in range(5)]
        walks.append(torch.stack(walk))
    assert torch.equal(*walks)


@needs_vmas
def test_action_spaces_are_gymnasium_s() -> None:
    discrete = make_vmas(2, "simple_spread")
    assert discrete.single_action_space == spaces.Discrete(9)
    steering = make_vmas(2, "simple_spread", continuous_actions=True)
    assert isinstance(steering.single_action_space, spaces.Box)
    assert steering.single_action_space.shape == (2,)
    steering.reset(seed=0)
    assert steering.step(torch.full((6, 2), 3.0))[1].shape == (6,)  # clamped
    many = make_vmas(2, "simple_spread", multidiscrete_actions=True)
    assert many.single_action_space == spaces.MultiDiscrete([3, 3])


@needs_vmas
def test_the_trainer_reads_tensors_and_true_final_observations() -> None:
    env = make_vmas(2, "simple_spread", n_agents=2, max_steps=3)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs = Environments(env)
    envs.reset(seed=0)
    assert envs.is_torch
    steps = [envs.step(torch.zeros(4, dtype=torch.int64)) for _ in range(3)]
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True]
    assert steps[2].final is not None
    assert not torch.equal(steps[2].final.observation["landmark"], envs.observation["landmark"])


@needs_vmas
class TestErrors:
    def test_a_scenario_without_a_layout(self) -> None:
        with pytest.raises(
            ValueError, match=r"than \['dispersion', 'simple_spread'\], got 'wheel'"
        ):
            make_vmas(2, "wheel")

    def test_another_width_names_the_versions(self) -> None:
        with pytest.raises(ValueError, match=r"must have 18 columns, got 14; vmas .* 1\.5\.2"):
            make_vmas(2, "simple_spread", spread_layout(4))

    def test_agents_that_act_differently(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = make_vmas(2, "simple_spread").vmas
        sizes = {"agent_0": 9, "agent_1": 9, "agent_2": 5}
        monkeypatch.setattr(
            inner, "get_agent_action_space", lambda agent: spaces.Discrete(sizes[agent.name])
        )
        with pytest.raises(ValueError, match=r"one action space, got \[.*9.*9.*5"):
            VmasVectorEnv(inner, spread_layout(3))

    def test_observations_that_are_no_tensors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = make_vmas(2, "simple_spread", n_agents=1).vmas
        monkeypatch.setattr(inner, "get_from_scenario", lambda **_: [[{"pos": torch.ones(2, 2)}]])
        with pytest.raises(ValueError, match="agent_0 must observe a tensor, got <class 'dict'>"):
            VmasVectorEnv(inner, spread_layout(1))

    def test_a_list_of_seeds(self) -> None:
        with pytest.raises(ValueError, match=r"one number for all worlds of VMAS, got \[1, 2\]"):
            make_vmas(2).reset(seed=[1, 2])  # type: ignore[arg-type]

    def test_a_step_before_the_first_reset(self) -> None:
        with pytest.raises(error.ResetNeeded, match="must be reset before it is stepped"):
            make_vmas(2).step(torch.zeros(6))
