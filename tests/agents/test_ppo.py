import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents import PPO, PPOConfig, WorkerError, load_policy
from entity_encoder.agents.calling import command
from entity_encoder.agents.checkpoint import exists, load_checkpoint
from entity_encoder.agents.monitor import is_known_tag
from entity_encoder.agents.rollout import Rollout
from entity_encoder.agents.update import NonFiniteError
from tests.cases.toys import Toy

SMALL: dict[str, Any] = {
    "num_envs": 3,
    "rollout_steps": 6,
    "epochs": 2,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
    "checkpoint_every": 1,
    "threads": 1,
}


def make(updates: int = 4, run_dir: Path | None = None, env: Any = Toy, **settings: Any) -> PPO:
    callbacks = settings.pop("callbacks", ())
    config = PPOConfig(**{**SMALL, "total_steps": updates * 18, **settings})
    return PPO([env] * 3, config, run_dir=run_dir, callbacks=callbacks, progress=False)


def assert_same(a: PPO, b: PPO) -> None:
    other = b.policy.state_dict()
    assert [n for n, x in a.policy.state_dict().items() if not torch.equal(x, other[n])] == []


class Sign(Toy):
    """One step: say whether the sum over the present entities is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(2)

    def _observe(self) -> dict[str, Any]:
        mask = (self.np_random.random(6) < 0.5).astype(np.int8)
        mask[0] = 1
        entities = self.np_random.normal(size=(6, 3)).astype(np.float32)
        self.answer = int((entities[:, 0] * mask).sum() > 0)
        return {"entities": entities, "mask": mask}

    def step(self, action: Any) -> Any:
        return self._observe(), float(action == self.answer), True, False, {}


class SignOnce(Sign):
    def step(self, action: Any) -> Any:
        reward = float(action == self.answer)
        return self._observe(), reward, True, False, {}


def test_it_learns() -> None:
    config = PPOConfig(
        total_steps=16 * 16 * 12,
        num_envs=16,
        rollout_steps=16,
        d_model=16,
        n_heads=2,
        n_layers=1,
        learning_rate=2e-2,
        threads=1,
    )
    agent = PPO([SignOnce] * 16, config, progress=False).learn()
    assert agent.episodes.mean("total") > 0.8  # chance is .5


def test_progress_is_logged_under_known_tags_and_counts_valid_steps(tmp_path: Path) -> None:
    seen: list[dict[str, float]] = []
    agent = make(3, tmp_path / "run", callbacks=[lambda _, m: seen.append(dict(m))])
    agent.learn()
    assert agent.steps == 3 * 18
    unknown = {tag for m in seen for tag in m if not is_known_tag(tag)}
    assert unknown == {"policy/log_ratio_max"}  # for callbacks, not for the log
    log = EventAccumulator(str(tmp_path / "run"))
    log.Reload()
    assert [e.step for e in log.Scalars("loss/policy")] == [18, 36, 54]
    assert set(log.Tags()["scalars"]) <= set(seen[0]) | set(seen[1]) | set(seen[2])
    assert agent.policy.encoder.check is None  # as the user left it


@pytest.mark.parametrize("number", [KeyboardInterrupt, RuntimeError])
def test_interrupted_training_is_saved_and_continues_bit_for_bit(
    tmp_path: Path, number: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting(Toy):
        armed = False

        def step(self, action: Any) -> Any:
            if Interrupting.armed and self.time == 2:
                Interrupting.armed = False
                raise number("pulled the plug")
            return super().step(action)

    def arm(agent: PPO, _: Any) -> None:
        Interrupting.armed = agent.iteration == 2

    whole = make(4).learn()
    config = PPOConfig(**SMALL, total_steps=72)
    agent = PPO([Interrupting] * 3, config, run_dir=tmp_path / "run", callbacks=[arm])
    with pytest.raises(number):
        agent.learn()
    said = capsys.readouterr().err
    assert "at 36 steps; saved in" in said
    assert f"resume: {command()} train --resume" in said
    resumed = PPO.load(tmp_path / "run" / "checkpoint", [Toy] * 3, progress=False)
    assert resumed.steps == 36
    assert_same(resumed.learn(), whole)
    assert_same(agent.learn(), whole)  # the object itself is none the worse


def test_a_worker_that_dies_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    class Dying(Toy):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == 15:
                os._exit(3)
            return super().step(action)

    config = PPOConfig(**{**SMALL, "checkpoint_every": 0, "workers": 1}, total_steps=90)
    agent = PPO([Dying] * 3, config, run_dir=tmp_path / "run", progress=False)
    with pytest.raises(WorkerError, match="died with exit code 3"):
        agent.learn()
    assert load_checkpoint(tmp_path / "run" / "checkpoint").about["step"] == 36


def test_a_loss_that_is_not_finite_keeps_what_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make(4, tmp_path / "run")
    collect = agent.collector.collect

    def poisoned() -> Rollout:
        rollout = collect()
        if agent.iteration == 2:
            rollout.reward[3, 1] = math.inf
        return rollout

    monkeypatch.setattr(agent.collector, "collect", poisoned)
    with pytest.raises(NonFiniteError, match="must be finite, got nan, first in the gradient of"):
        agent.learn()
    monkeypatch.undo()
    assert agent.steps == 36
    saved = load_checkpoint(tmp_path / "run" / "checkpoint")
    assert saved.about["step"] == 36
    assert all(torch.isfinite(x).all() for x in saved.weights.values())


def test_callbacks_may_end_training_and_all_are_called() -> None:
    called: list[str] = []

    def first(agent: PPO, metrics: Any) -> bool:
        called.append("first")
        return agent.iteration == 2

    agent = make(9, callbacks=[first, lambda *_: called.append("second")])
    agent.learn()
    assert agent.iteration == 2
    assert called == ["first", "second"] * 2


def test_a_target_ends_training() -> None:
    agent = make(200, env=SignOnce, target_return=0.2)
    agent.learn()
    assert len(agent.episodes.recent) == 100
    assert agent.steps < 200 * 18


def test_a_folder_with_another_run_is_not_overwritten(tmp_path: Path) -> None:
    make(1, tmp_path / "run").learn()
    with pytest.raises(FileExistsError, match=r"run_dir must be new, got .*PPO\.load"):
        make(1, tmp_path / "run").learn()


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    agent = make(6, tmp_path / "run").learn()
    assert exists(tmp_path / "run" / "best")
    best = load_checkpoint(tmp_path / "run" / "best")
    assert best.state["best_return"] == agent.best_return
    assert best.about["step"] <= agent.steps


def test_training_can_go_on_for_longer_than_planned(tmp_path: Path) -> None:
    make(2, tmp_path / "run").learn()
    agent = PPO.load(tmp_path / "run" / "checkpoint", [Toy] * 3, total_steps=4 * 18, progress=False)
    assert agent.run_dir == tmp_path / "run"
    assert agent.learn().steps == 72
    log = EventAccumulator(str(tmp_path / "run"))
    log.Reload()
    assert [e.step for e in log.Scalars("loss/policy")] == [18, 36, 54, 72]


def test_another_number_of_environments_begins_new_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = make(2, tmp_path / "run").learn()
    other = PPO.load(
        tmp_path / "run" / "checkpoint", [Toy] * 2, run_dir=tmp_path / "new", total_steps=60
    )
    assert other.episodes.finished == agent.episodes.finished
    assert other.learn().steps == 36 + 2 * 12
    assert "not exact: environments begin new episodes" in capsys.readouterr().err


class Wider(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            entities=spaces.Box(-9, 9, (6, 4), np.float32), mask=spaces.MultiBinary(6)
        )


def test_an_environment_that_shows_something_else_is_refused(tmp_path: Path) -> None:
    agent = make(1, tmp_path / "run").learn()
    message = r"trained on, got schema\.groups\[0\]\.features = .*'f3'.* instead of \['f0'"
    with pytest.raises(ValueError, match=message):
        PPO.load(tmp_path / "run" / "checkpoint", [Wider] * 3)
    with pytest.raises(ValueError, match=message):
        agent.evaluate(1, env=[Wider])


def test_environment_objects_cannot_be_made_again(tmp_path: Path) -> None:
    agent = make(1, tmp_path / "run").learn()
    with pytest.raises(ValueError, match="env must be given to evaluate, got None"):
        agent.evaluate(1)
    with pytest.raises(ValueError, match="env must be given to load"):
        PPO.load(tmp_path / "run" / "checkpoint")


def test_a_run_by_id_is_made_again_with_its_options(tmp_path: Path) -> None:
    config = PPOConfig(**{**SMALL, "num_envs": 4, "rollout_steps": 2}, total_steps=8)
    agent = PPO(
        "Entity/CherryPick-v0",
        config,
        run_dir=tmp_path / "run",
        progress=False,
    ).learn()
    again = PPO.load(tmp_path / "run" / "checkpoint", progress=False)
    assert again.env_description == {"id": "Entity/CherryPick-v0", "kwargs": {}}
    assert_same(again, agent)
    assert len(agent.evaluate(5, deterministic=False).episodes) == 5
    policy = load_policy(tmp_path / "run" / "checkpoint")
    assert policy.schema == agent.policy.schema


def test_choices_are_printed_with_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    config = PPOConfig(**{**SMALL, "threads": 1}, total_steps=18)
    PPO([Toy] * 3, config).learn()
    said = capsys.readouterr().err
    assert "device: cpu (auto)" in said
    assert "minibatch: at most 2 of 18 samples" in said
    assert "threads: 1 (asked for)" in said


def test_every_state_of_the_random_numbers_is_our_own() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    make(1).learn()
    assert torch.equal(torch.get_rng_state(), before)
