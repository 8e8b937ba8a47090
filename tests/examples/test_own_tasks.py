"""Our own examples run, each in a short form, and show what they say they show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from entity_encoder import EntityEncoder
from entity_encoder.envs import check_entity_env, find_task


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def test_rockfall_is_an_ordinary_environment_and_trains() -> None:
    from examples import own_gymnasium_env

    check_env(own_gymnasium_env.Rockfall(slots=3), skip_render_check=True)
    assert 1 <= own_gymnasium_env.main(["--steps", "1024"]) <= 100


def test_a_rock_hits_who_stands_below_it() -> None:
    from examples.own_gymnasium_env import Rockfall

    env = Rockfall(slots=2, render_mode="rgb_array")
    env.reset(seed=0)
    env.rocks[:] = [[0.5, 0.1, 0.06], [0.1, 0.1, 0.06]]  # above the walker, and beside
    for falling, hit in ((True, True), (False, False)):
        env.walker, env.falling[:] = 0.5, [falling, True]
        _, reward, terminated, *_ = env.step(np.int64(1))
        assert (terminated, reward) == (hit, 1 - hit)
        env.rocks[:, 1] = 0.1
    assert np.unique(env.render()).size > 1


@pytest.mark.parametrize("options", [[], ["--squash"]])
def test_continuous_control_trains(options: list[str]) -> None:
    from examples.continuous_control import main

    assert -60 < main(["--steps", "4096", *options]) < 0  # 20 steps, none farther than sqrt(8)


def test_the_middle_is_that_of_the_lit_beacons() -> None:
    from examples.continuous_control import Centre, middle

    state = {
        "beacon": torch.tensor([[[0.2, 0.4], [0.0, 0.0], [0.6, 0.8]]]),  # the second is off
        "lit": torch.tensor([[True, False, True]]),
        "cart": torch.zeros(1, 2),
    }
    torch.testing.assert_close(middle(state), torch.tensor([[0.4, 0.6]]))
    assert check_entity_env(Centre(3, max_beacons=5)).holes


def test_pointing_shows_that_probabilities_move_along(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.pointing import main

    main(["--env", "Entity/Triage-v0", "--steps", "4096"])
    assert re.search("[1-8] empty slots have probability 0.0", capsys.readouterr().out)


def test_transfer_evaluates_the_same_weights_on_more_jobs() -> None:
    from examples.transfer import main, rule_of_thumb

    found = main(["--steps", "4096", "--jobs", "3", "11", "--episodes", "8"])
    assert list(found) == [3, 11]
    assert all(0 < value <= 1 + 1e-6 for value in found.values())
    # weight per step: .9 / 3, .5 / 1, and .8 / 1, which is gone
    job = torch.tensor([[[0.9, 3.0], [0.5, 1.0], [0.8, 1.0]]])
    mask = torch.tensor([[True, True, False]])
    assert rule_of_thumb({"job": job, "job_mask": mask}).tolist() == [1]


def test_shares_of_attention_are_those_of_the_maps() -> None:
    from examples.many_kinds import attention_by_kind

    make: Any = find_task("MultiSnake")
    env = make(num_envs=2, num_snakes=2, output="torch")
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        observation, *_ = env.step(env.reference_policy(env.state))
    encoder = EntityEncoder(env.entity_schema, d_model=16, n_heads=2, n_layers=2)
    shares = attention_by_kind(encoder, observation)
    assert shares.shape == (2, 3, 3)
    encoding = encoder(observation, return_attention=True)
    starts, layer = {"head": 0, "body": 2, "food": 22}, 1
    ends = {"head": 2, "body": 22, "food": 24}
    for j, kind in enumerate(starts):
        seen = []
        for row in range(2):
            for slot in range(starts[kind], ends[kind]):
                if encoding.mask[row, slot]:
                    seen.append(encoding.attention[row, layer, :, slot].mean(0))
        for k, other in enumerate(starts):
            paid = [float(x[starts[other] : ends[other]].sum()) for x in seen]
            expected = sum(paid) / len(paid) if paid else 0.0
            assert float(shares[layer, j, k]) == pytest.approx(expected, abs=1e-5)


def test_many_kinds_trains(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.many_kinds import main

    shares = main(["--steps", "4096", "--env-arg", "max_units=3", "--env-arg", "min_units=3"])
    assert shares.shape == (2, 2, 2)  # layers, allies and enemies
    assert "layer 1: looks at" in capsys.readouterr().out


def test_the_sweep_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    optuna = pytest.importorskip(
        "optuna", reason='optuna is missing: pip install "entity-encoder[sweep]"'
    )
    from examples import sweep

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    monkeypatch.setattr(sweep, "choose_settings", lambda trial: {"d_model": 4 + 4 * trial.number})
    study = sweep.main(["--trials", "2", "--steps", "8192", "--episodes", "4"])
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    assert len(study.trials[0].intermediate_values) == 2  # two iterations of 4,096 steps
    assert study.best_value == max(trial.values[0] for trial in study.trials)


def test_a_missing_optuna_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import sweep

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "entity-encoder\[sweep\]"'):
        sweep.main([])
