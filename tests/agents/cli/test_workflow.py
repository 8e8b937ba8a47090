"""Train, evaluate, resume, plot, watch, export: the commands in the order people use them."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from entity_encoder.agents.cli import main
from entity_encoder.agents.saved import load_policy

LAVA = "Entity/FloorIsLava-v0"
TINY = shlex.split(
    "--num-envs 5 --rollout-steps 9 --d-model 8 --n-heads 2 --n-layers 1 --threads 1 --epochs 1"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A tiny run in a directory of its own, and what the command printed at the end."""
    place = tmp_path_factory.mktemp("work")
    words = ["train", LAVA, "--total-steps", "90", "--eval-episodes", "8", *TINY]
    with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(words) == 0
    return place, said.getvalue().splitlines()


@pytest.fixture
def work(trained: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained[0])
    return trained[0]


def run_json(words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main(shlex.split(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_the_last_lines_say_what_was_reached_and_what_to_do(trained: Any) -> None:
    lines = [line.strip() for line in trained[1] if line.strip()]
    assert lines[0].startswith(f"{LAVA}: trained for 90 steps (")
    assert lines[1].startswith("return ")
    assert lines[1].endswith("over 8 episodes")
    assert lines[2] == "reference    1 by the scripted policy, 0.125 by random actions"
    assert lines[3].endswith("% of the way from random to scripted")
    assert [line.split()[0] for line in lines[4:]] == [
        "checkpoint",
        "TensorBoard",
        "evaluate",
        "resume",
    ]
    assert lines[4].split()[1] == "runs/floorislava-seed1/checkpoint"


def test_the_printed_commands_work(trained: Any, work: Path) -> None:
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in trained[1][-3:]}
    for name in ("evaluate", "resume"):
        words = shlex.split(lines[name])
        words = words[words.index({"evaluate": "eval", "resume": "train"}[name]) :]
        assert main(words) == 0
    assert (work / "runs/floorislava-seed1/play.gif").read_bytes()[:6] == b"GIF89a"
    assert load_policy(work / "runs/floorislava-seed1/checkpoint")


def test_json_result_and_a_second_run_beside_the_first(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = " ".join(TINY)
    found = run_json(f"train {LAVA} --total-steps 45 --eval-episodes 3 --json {tiny}", capsys)
    assert found["run_dir"] == "runs/floorislava-seed1-2"
    assert found["steps"] == found["steps_of_this_call"] == 45
    assert found["evaluation"]["episodes"] == 3
    share = (found["evaluation"]["return"]["mean"] - 0.125) / (1 - 0.125)
    assert found["reached"] == pytest.approx(share)
    more = run_json(
        f"train --resume --run-dir {found['run_dir']} --total-steps 90 --eval-episodes 0 --json",
        capsys,
    )
    assert (more["steps"], more["steps_of_this_call"]) == (90, 45)
    assert more["evaluation"] is None
    assert main(["train", LAVA, "--run-dir", found["run_dir"], *TINY]) == 2
    assert "--run-dir must be new" in capsys.readouterr().err


def test_evaluation_prints_a_reproducible_result(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "eval runs/floorislava-seed1 --episodes 11 --json"
    first = run_json(words, capsys)
    assert first == run_json(words, capsys)
    assert first["env"] == LAVA
    assert first["episodes"] == 11
    assert run_json(f"{words} --seed 5 --sampled", capsys)["deterministic"] is False
    assert main(["eval", "runs/floorislava-seed1", "--episodes", "4"]) == 0
    assert capsys.readouterr().out.startswith(f"{LAVA}: 4 episodes, most probable actions, seed ")


def test_untrained_policies_are_marks_to_compare_with(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(f"eval --policy reference --env {LAVA} --episodes 5 --json", capsys)
    assert found["return"]["mean"] == 1.0
    assert found["deterministic"] is None


def test_another_task_is_refused_by_its_observation(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "runs/floorislava-seed1", "--env", "Entity/Minefield-v0"]) == 2
    assert "the environment must show what this policy was trained on" in capsys.readouterr().err


def test_plots_are_written_and_named(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="plots are an extra")
    words = "plot runs/floorislava-seed1 --out new/curves --smooth 0.5"
    assert main(shlex.split(words)) == 0
    files = capsys.readouterr().out.split()
    assert files == ["new/curves.png", "new/curves.svg"]
    assert all(Path(file).exists() for file in files)


def test_an_exported_policy_acts_like_the_original(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json("export runs/floorislava-seed1 policy.pt2 --json", capsys)
    assert found["outputs"][0] == "action"
    import entity_encoder.envs  # noqa: F401
    from entity_encoder.agents.environments import Environments
    from entity_encoder.agents.making import make_environments

    envs = Environments(make_environments(LAVA, num_envs=7))
    observation = envs.reset(seed=4)
    policy = load_policy("runs/floorislava-seed1/checkpoint")
    program = torch.export.load("policy.pt2").module()
    outputs = program({key: observation[key] for key in found["inputs"]})
    assert torch.equal(outputs["action"], policy.act(observation, deterministic=True).env_action)


def test_a_policy_with_memory_is_not_exported(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", LAVA, "--total-steps", "45", "--recurrent", "3", "--eval-episodes", "0"]
    assert main([*words, "--run-dir", "memory", *TINY]) == 0
    assert main(["export", "memory", "policy.pt2"]) == 2
    assert "policy must have no memory to be exported, got recurrent=3" in capsys.readouterr().err


def test_bench_measures_where_time_goes(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"bench {LAVA} --num-envs 5 --rollout-steps 9 --iterations 2 --threads 1"
    found = run_json(f"{words} --json", capsys)
    shares = [found[f"{name}_share"] for name in ("environment", "inference", "update")]
    assert 0.5 < sum(shares) <= 1.001
    assert found["steps_per_second"] > 0
    assert found["entities_per_second"] > found["steps_per_second"]
    assert main(words.split()) == 0
    assert "environment steps per second" in capsys.readouterr().out


def test_bench_takes_tasks_whose_episodes_end_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Minefield's iterations report the returns of other numbers of mines each time.
    words = "bench Entity/Minefield-v0 --num-envs 16 --rollout-steps 32 --iterations 3 --json"
    assert main(words.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["iterations"] == 3
    assert found["environment_share"] + found["inference_share"] + found["update_share"] < 1.001


def test_watch_prints_the_address_and_serves_until_it_is_interrupted(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Board:
        """TensorBoard that is interrupted at once."""

        def __init__(self, run_dir: str, *, port: int | None, host: str) -> None:
            self.url = f"http://{host}:{port}/"

        def wait(self) -> None:
            raise KeyboardInterrupt

        def __enter__(self) -> Board:
            return self

        def __exit__(self, *_: object) -> None:
            print("closed")

    monkeypatch.setattr("entity_encoder.agents.watch.TensorBoard", Board)
    assert main(["watch", "--port", "7001"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "TensorBoard on runs: http://localhost:7001/   (Ctrl-C stops it)"
    assert rest == ["stopped", "closed"]


def test_a_run_that_was_interrupted_says_how_to_go_on(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Any, agent: Any, metrics: Any) -> None:
        if agent.steps >= 135:
            raise KeyboardInterrupt

    monkeypatch.setattr("entity_encoder.agents.callbacks.Evaluation.__call__", interrupt)
    words = ["train", LAVA, "--total-steps", "1e9", "--run-dir", "endless", *TINY]
    assert main(words) == 130
    said = capsys.readouterr().err
    assert "interrupted at 90 steps" in said
    assert "train --resume endless" in said
    assert load_policy("endless/checkpoint")


def test_play_needs_a_display_and_prints_the_returns(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Window:
        """A screen on which Escape is pressed after one episode."""

        def __init__(self, title: str) -> None:
            self.keys = ["w", "Escape"]

        def show(self, frame: np.ndarray, text: str) -> None:
            """Show nothing."""

        def key(self) -> str | None:
            return self.keys.pop(0) if self.keys else None

        def close(self) -> None:
            """Close nothing."""

    monkeypatch.setattr("entity_encoder.agents.play.PlayWindow", Window)
    assert main(["play", LAVA, "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 episodes, mean return ")
    assert text.endswith("random 0.125, scripted reference 1.0\n")
