import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.groups import Group
from entity_encoder.envs.vector import EntityVectorEnv
from tests.envs.toys import Countdown, Lottery

MODES = ["NEXT_STEP", "SAME_STEP", "DISABLED"]


def play(env: EntityVectorEnv, steps: int, seed: int | None = 3) -> list[Any]:
    """Play the reference policy; return observation, reward and flags of each step."""
    observation, _ = env.reset(seed=seed)
    record: list[Any] = [(observation, None, None, None)]
    for _ in range(steps):
        ended = env._ended
        if env.autoreset_mode is AutoresetMode.DISABLED and bool(ended.any()):
            env.reset(options={"reset_mask": ended})
        record.append(env.step(env.reference_policy(env.state))[:4])
    return record


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and one.dtype == object:
        return all(map(same, one, other))
    if one is None:
        return other is None
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


@pytest.mark.parametrize("per_entity", [False, True])
def test_trajectories_do_not_depend_on_the_number_of_environments(per_entity: bool) -> None:
    def record(n: int, seed: int) -> list[Any]:
        env = Lottery(n, per_entity=per_entity)
        env.reset(seed=seed)
        result = []
        for t in range(40):
            action = env.reference_policy(env.state)
            if per_entity:
                action = torch.full((n, 7), t % 3)
            result.append(env.step(action)[:4])
        return result

    many, one = record(257, seed=0), record(1, seed=131)
    for a, b in zip(many, one, strict=True):
        assert same({k: v[131:132] for k, v in a[0].items()}, b[0])
        assert all(same(x[131:132], y) for x, y in zip(a[1:], b[1:], strict=True))


def test_same_seed_repeats_and_another_does_not() -> None:
    assert same(play(Lottery(), 30), play(Lottery(), 30))
    assert not same(play(Lottery(), 30), play(Lottery(), 30, seed=4))


def test_reset_without_a_seed_continues_the_stream() -> None:
    env, again = Lottery(), Lottery()
    env.reset(seed=3)
    again.reset(seed=3)
    first, second = env.reset()[0], env.reset()[0]
    assert not same(first, second)
    assert same([first, second], [again.reset()[0], again.reset()[0]])


def test_an_unseeded_environment_is_random() -> None:
    assert not same(Lottery().reset()[0], Lottery().reset()[0])


@pytest.mark.parametrize("mode", MODES)
def test_state_resumes_bit_exactly(mode: str) -> None:
    env = Lottery(autoreset_mode=mode)
    play(env, 17)
    saved = env.get_state()
    rest = [env.step(env.reference_policy(env.state)) for _ in range(2)] if mode != MODES[2] else []
    later = Lottery(autoreset_mode=mode)
    later.set_state(pickle.loads(pickle.dumps(saved)))
    assert same(later.get_state(), saved)
    for expected in rest:
        assert same(later.step(later.reference_policy(later.state)), expected)
    env.set_state(saved)  # also in the environment that went on
    if rest:
        assert same(env.step(env.reference_policy(env.state)), rest[0])


def test_saved_state_is_not_connected_to_the_environment() -> None:
    env = Lottery()
    play(env, 9)
    saved = env.get_state()
    kept = pickle.loads(pickle.dumps(saved))
    for _ in range(20):
        env.step(env.reference_policy(env.state))
    assert same(saved, kept)
    assert set(saved) == {"streams", "ended", "return", "state"}


def test_current_observation_can_be_asked_for_again() -> None:
    env = Lottery()
    observation = play(env, 5)[-1][0]
    assert same(env.observation(), observation)
    other = Lottery()
    other.set_state(env.get_state())
    assert same(other.observation(), observation)


def test_state_of_another_number_of_environments_is_refused() -> None:
    env = Lottery(3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="state must hold num_envs=4 environments, got 3"):
        Lottery(4).set_state(env.get_state())


def test_pickled_environment_continues_alike() -> None:
    env = Lottery()
    play(env, 12)
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(9):
        action = env.reference_policy(env.state)
        assert same(env.step(action), copy.step(action))


@pytest.mark.parametrize("mode", MODES)
def test_rows_masked_as_on_a_gpu_give_the_same_trajectories(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = play(Lottery(autoreset_mode=mode), 40)
    monkeypatch.setattr(Lottery, "_rows", lambda self, mask: mask)
    # There the end of an episode in DISABLED mode cannot be refused either.
    monkeypatch.setattr(Lottery, "_refuse_ended", lambda self, rows: None)
    assert same(play(Lottery(autoreset_mode=mode), 40), expected)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_waits_for_another_device(mode: str) -> None:
    # Tensors on "meta" have no values: whatever asks for one raises an error.
    env = Lottery(4, device="meta", output="torch", autoreset_mode=mode)
    env.reset(seed=0)
    actions = torch.zeros(4, dtype=torch.int64, device="meta")
    for _ in range(3):
        observation, reward, *_, infos = env.step(actions)
    mask = torch.ones(4, dtype=torch.bool, device="meta")
    env.reset(options={"reset_mask": mask})
    assert {value.device.type for value in observation.values()} == {"meta"}
    assert reward.device.type == infos["score"].device.type == "meta"


def test_outputs_have_gymnasium_s_types_or_are_tensors() -> None:
    env = Lottery(output="numpy")
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert observation["ball_mask"].dtype == np.int8
    _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
    tensors = Lottery(output="torch")
    observation, _ = tensors.reset(seed=1)
    assert observation["ball_mask"].dtype == torch.bool
    assert observation["ball"].dtype == torch.float32
    with pytest.raises(ValueError, match="output must be 'numpy' or 'torch', got 'jax'"):
        Lottery(output="jax")


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("mode", MODES[:2])
def test_editing_what_was_returned_changes_nothing(output: str, mode: str) -> None:
    expected = play(Lottery(autoreset_mode=mode), 30)
    env = Lottery(autoreset_mode=mode, output=output)

    def spoil(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                spoil(item)
        elif isinstance(value, (np.ndarray, torch.Tensor)) and value.dtype != object:
            value[...] = 1

    spoil(env.reset(seed=3)[0])
    for step in expected[1:]:
        *result, infos = env.step(env.reference_policy(env.state))
        assert same(result, list(step))
        spoil(infos)
        for item in result:
            spoil(item)


def test_stored_observations_are_never_overwritten() -> None:
    env = Lottery()
    stored = [env.reset(seed=0)[0]]
    copies = [pickle.loads(pickle.dumps(stored[0]))]
    for _ in range(25):
        stored.append(env.step(env.reference_policy(env.state))[0])
        copies.append(pickle.loads(pickle.dumps(stored[-1])))
    assert same(stored, copies)


def test_time_limit_truncates_unless_the_episode_terminates_there() -> None:
    env = Countdown(lengths=(3, 2, 1), max_episode_steps=2)
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step([0, 0, 0])
    assert (terminated.tolist(), truncated.tolist()) == ([False, False, True], [False] * 3)
    _, _, terminated, truncated, _ = env.step([0, 0, 0])
    assert (terminated.tolist(), truncated.tolist()) == ([False, True, False], [True, False, False])


def test_score_measures_the_return_between_random_and_reference() -> None:
    env = Countdown(lengths=(3, 2, 1), output="torch")
    env.random_return = 2.0
    env.reset(seed=0)
    scores: list[dict[int, float]] = []
    for _ in range(4):
        infos = env.step([0, 0, 0])[4]
        where = infos["_score"].nonzero().flatten().tolist()
        scores.append({row: float(infos["score"][row]) for row in where})
    # Returns 1, 1 + 2 and 1 + 2 + 3; (1 - 2)/4, (3 - 2)/4, (6 - 2)/4. Row 2 begins anew at step 2.
    assert scores == [{2: -0.25}, {1: 0.25}, {0: 1.0, 2: -0.25}, {}]


def test_partial_reset_leaves_the_others_alone() -> None:
    env, other = Lottery(ending=0.0), Lottery(ending=0.0)
    for each in (env, other):
        each.reset(seed=8)
        each.step(each.reference_policy(each.state))
    mask = np.array([0, 1, 0, 0, 1], bool)
    before = env.observation()
    after, _ = env.reset(options={"reset_mask": mask})
    assert same({k: v[~mask] for k, v in after.items()}, {k: v[~mask] for k, v in before.items()})
    begun = Lottery(ending=0.0)
    begun.reset(seed=8)
    episode = begun.reset()[0]  # the second one of the stream
    assert same({k: v[mask] for k, v in after.items()}, {k: v[mask] for k, v in episode.items()})
    assert env.state["elapsed"].tolist() == [1, 0, 1, 1, 0]


def test_slots_stay_in_order_without_shuffling() -> None:
    ids = Lottery(64, shuffle_slots=False)
    ids.reset(seed=0)
    assert torch.equal(ids.state["id"], torch.arange(7).expand(64, 7))
    mixed = Lottery(64)
    mixed.reset(seed=0)
    there = mixed.state["there"]
    assert (~there[:, :-1] & there[:, 1:]).any()  # holes
    assert not torch.equal(mixed.state["id"], torch.arange(7).expand(64, 7))
    assert torch.equal(there.sum(1), ids.state["there"].sum(1))


def test_steps_before_reset_and_after_the_end_are_refused() -> None:
    env = Countdown(lengths=(3, 1, 1), autoreset_mode="DISABLED")
    with pytest.raises(error.ResetNeeded, match="Countdown must be reset before it is used"):
        env.step([0, 0, 0])
    with pytest.raises(error.ResetNeeded, match="the first reset must be of all environments"):
        env.reset(options={"reset_mask": np.ones(3, bool)})
    env.reset(seed=0)
    env.step([0, 0, 0])
    with pytest.raises(error.ResetNeeded, match=r"in DISABLED mode, got it in env 1 \(2 in all\)"):
        env.step([0, 0, 0])
    env.reset(options={"reset_mask": np.array([False, True, True])})
    env.step([0, 0, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs must be a whole number from 1"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a whole number from 1"),
        ({"autoreset_mode": "maybe"}, "autoreset_mode must be one of"),
        ({"render_mode": "ascii"}, r"render_mode must be one of \['human', 'rgb_array'\] or None"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lottery(**options)


def test_a_task_may_lack_drawing_and_reference() -> None:
    env = Countdown(render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="Countdown cannot be drawn: define render_frame"):
        env.render()
    with pytest.raises(
        TypeError, match="Countdown has no scripted policy: define reference_policy"
    ):
        EntityVectorEnv.reference_policy(env, env.state)


def test_rendering_needs_a_mode_and_gives_one_frame_for_each_environment() -> None:
    env = Lottery(3, render_mode="rgb_array")
    env.reset(seed=0)
    frames = env.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [(4, 6, 3)] * 3
    assert [int(frame[0, 0, 0]) for frame in frames] == env.state["there"].sum(1).tolist()
    silent = Lottery(3)
    silent.reset(seed=0)
    with pytest.raises(ValueError, match="render needs a render_mode, got None; make Lottery with"):
        silent.render()
    assert np.array_equal(np.asarray(silent.picture(1)), frames[1])  # the same seed, asked for


def test_declared_mode_belongs_to_the_instance() -> None:
    assert Lottery(autoreset_mode="SAME_STEP").metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert Lottery().metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "autoreset_mode" not in EntityVectorEnv.metadata


class Masked(Countdown):
    """A Countdown whose second action is illegal."""

    def __init__(self, **options: Any) -> None:
        EntityVectorEnv.__init__(
            self,
            3,
            groups=(Group("item", 4, {"count": (0.0, 99.0)}),),
            action_space=spaces.Discrete(2),
            action_mask=True,
            **options,
        )
        self._lengths = torch.tensor((3, 2, 1))

    def observe(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        legal = torch.tensor([True, False]).expand(len(state["length"]), 2)
        return {**super().observe(state), "action_mask": legal}


def test_action_mask_is_part_of_space_schema_and_check() -> None:
    env = Masked()
    observation, _ = env.reset(seed=0)
    assert isinstance(env.single_observation_space, spaces.Dict)
    assert isinstance(env.single_observation_space, spaces.Dict)
    assert env.single_observation_space["action_mask"] == spaces.MultiBinary(2)
    assert env.entity_schema.action_masks == ("action_mask",)
    assert observation["action_mask"].tolist() == [[1, 0]] * 3
    assert env.legal is not None
    assert env.legal.tolist() == [[True, False]] * 3
    assert {int(a) for _ in range(9) for a in env.action_space.sample()} == {0}
    with pytest.raises(ValueError, match="action must be legal, got 1 in env 2"):
        env.step([0, 0, 1])
