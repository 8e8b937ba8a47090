"""Everything that can be watched during training, on at once and read back from the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import (
    AttentionMaps,
    Embeddings,
    Evaluation,
    Film,
    Histograms,
    Profile,
    evaluation_metrics,
)
from entity_encoder.agents.episodes import Episode
from entity_encoder.agents.evaluate import EvaluationResult
from entity_encoder.agents.monitor import is_known_tag

LAVA = "Entity/FloorIsLava-v0"
SMALL: dict[str, Any] = {
    "num_envs": 5,
    "rollout_steps": 9,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
    "threads": 1,
    "epochs": 1,
}


def train(updates: int, run_dir: Path | None, *callbacks: Any) -> PPO:
    config = PPOConfig(total_steps=45 * updates, **SMALL)
    agent = PPO(LAVA, config, run_dir=run_dir, callbacks=callbacks, progress=False)
    return agent.learn()


def read(run_dir: Path) -> EventAccumulator:
    log = EventAccumulator(str(run_dir), size_guidance={"scalars": 0, "histograms": 0})
    log.Reload()
    return log


def steps(log: EventAccumulator, tag: str) -> list[int]:
    return [event.step for event in log.Scalars(tag)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[PPO, EventAccumulator, Evaluation]:
    """A run of five updates with everything on."""
    run_dir = tmp_path_factory.mktemp("runs") / "all"
    evaluation = Evaluation(every=90, episodes=7)
    others = (AttentionMaps(every=100), Embeddings(every=90), Profile())
    agent = train(5, run_dir, evaluation, Film(every=100), Histograms(every=180), *others)
    return agent, read(run_dir), evaluation


def test_evaluations_come_at_their_interval_and_at_the_end(watched: Any) -> None:
    _, log, evaluation = watched
    assert steps(log, "evaluation/return") == [90, 180, 225]
    result = evaluation.result
    assert len(result.episodes) == 7
    assert log.Scalars("evaluation/return")[-1].value == pytest.approx(result.returns.mean)


def test_films_come_at_their_interval_and_at_the_end(watched: Any) -> None:
    _, log, _ = watched
    films = log.Images("policy/film")
    assert [film.step for film in films] == [135, 225]  # 100 passed at 135, 200 at 225: the end
    assert films[0].encoded_image_string[:6] == b"GIF89a"


def test_attention_comes_at_its_interval_and_at_the_end(watched: Any) -> None:
    _, log, _ = watched
    for tag in ("attention/matrix", "attention/frame"):
        assert [event.step for event in log.Images(tag)] == [135, 225]


def test_histograms_show_weights_gradients_and_activations(watched: Any) -> None:
    agent, log, _ = watched
    tags = log.Tags()["histograms"]
    names = [name for name, _ in agent.policy.named_parameters()]
    assert {f"weights/{name}" for name in names} <= set(tags)
    assert {f"gradients/{name}" for name in names} <= set(tags)
    assert any(tag.startswith("activations/encoder") for tag in tags)
    for tag in tags:
        events = log.Histograms(tag)
        assert [event.step for event in events] == [180]
        assert events[0].histogram_value.num > 0
        assert [event.value for event in log.Scalars(f"non_finite/{tag}")] == [0.0]


def test_every_scalar_of_a_training_stands_in_the_table(watched: Any) -> None:
    _, log, _ = watched
    tags = log.Tags()["scalars"]
    assert [tag for tag in tags if not is_known_tag(tag)] == []
    assert any(tag.startswith("return_by_entities/") for tag in tags)
    for tag in tags:
        found = steps(log, tag)
        assert found == sorted(set(found))


def test_watching_changes_no_bit(watched: Any) -> None:
    agent, _, _ = watched
    alone = train(5, None).policy.state_dict()
    for name, value in agent.policy.state_dict().items():
        assert torch.equal(value, alone[name])


def test_without_an_interval_only_the_last_policy_is_evaluated(tmp_path: Path) -> None:
    evaluation = Evaluation(episodes=3)
    train(2, tmp_path, evaluation)
    assert steps(read(tmp_path), "evaluation/return") == [90]


def test_an_interval_continues_over_a_resume(tmp_path: Path) -> None:
    train(2, tmp_path, Evaluation(every=120, episodes=3))
    again = Evaluation(every=120, episodes=3)
    agent = PPO.load(tmp_path / "checkpoint", callbacks=[again], progress=False, total_steps=180)
    agent.learn()
    # 90 ended the first part; 120 was passed at 135; 180 ended the second
    assert steps(read(tmp_path), "evaluation/return") == [90, 135, 180]


def test_a_task_that_cannot_be_drawn_is_said_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise TypeError("FloorIsLava cannot be drawn: define render_frame")

    monkeypatch.setattr("entity_encoder.agents.callbacks.film.make_visible", fail)
    agent = train(3, tmp_path, Film(every=45))
    assert agent.steps == 135
    assert [r.message for r in caplog.records] == [
        "no film of the policy: FloorIsLava cannot be drawn: define render_frame"
    ]


def test_an_environment_given_as_objects_cannot_be_filmed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import gymnasium

    config = PPOConfig(total_steps=45, **SMALL)
    vector = gymnasium.make_vec(LAVA, 5, output="torch")
    PPO(vector, config, run_dir=tmp_path, callbacks=[Film()], progress=False).learn()
    assert "the environment was given as objects" in caplog.text


@pytest.mark.parametrize("make", [AttentionMaps, Embeddings, Evaluation, Film, Histograms])
def test_an_interval_is_not_negative(make: Any) -> None:
    with pytest.raises(ValueError, match="every must not be negative, got -3"):
        make(every=-3)


def test_what_an_evaluation_cannot_tell_is_left_out() -> None:
    one = EvaluationResult((Episode(3, 2.0, 1),), True, 0)
    found = {tag: value for tag, value in evaluation_metrics(one).items() if value is not None}
    assert found == {"evaluation/return": 2.0, "evaluation/length": 3.0}
