"""TensorBoard itself, asked what it shows."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_encoder.agents.monitor import Monitor
from entity_encoder.agents.watch import TensorBoard, free_port


def ask(url: str, **query: Any) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}") as answer:
        return json.loads(answer.read())


def ask_until_known(url: str, **query: Any) -> Any:
    """Ask again while TensorBoard is still reading the files."""
    for _ in range(100):
        answer = ask(url, **query)
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{url} stays empty")


def test_tensorboard_shows_a_resumed_run_as_one(tmp_path: Path) -> None:
    with Monitor(tmp_path / "run") as monitor:
        monitor.scalars({"episode/return": 1.0, "evaluation/return": 1.0}, 1)
        monitor.scalars({"episode/return": 2.0, "evaluation/return": 2.0}, 2)
    with Monitor(tmp_path / "run", resume_step=2) as monitor:
        monitor.hparams({"learning_rate": 0.5, "hidden": [3, 5]}, ["episode/return"], step=2)
        monitor.scalar("episode/return", 20.0, 2)
        monitor.image("frame", np.zeros((5, 7, 3), np.uint8), 2)
    with TensorBoard(tmp_path) as board:
        assert board.url.startswith("http://localhost:")
        scalars = f"{board.url}data/plugin/scalars"
        tags = ask_until_known(f"{scalars}/tags")
        assert list(tags) == ["run"]  # settings make no run of their own
        points = ask(f"{scalars}/scalars", run="run", tag="episode/return")
        assert [(step, value) for _, step, value in points] == [(1, 1.0), (2, 20.0)]
        stale = ask(f"{scalars}/scalars", run="run", tag="evaluation/return")
        assert [(step, value) for _, step, value in stale] == [(1, 1.0)]
        images = ask(f"{board.url}data/plugin/images/images", run="run", tag="frame", sample=0)
        assert [image["step"] for image in images] == [2]
        layout = ask(f"{board.url}data/plugin/custom_scalars/layout")
        assert layout["category"][0]["title"] == "Does it learn?"
        request = json.dumps({"experimentName": ""})
        experiment = ask(f"{board.url}data/plugin/hparams/experiment", request=request)
        assert {h["name"] for h in experiment["hparamInfos"]} == {"learning_rate", "hidden"}


def test_nothing_to_watch_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run must hold TensorBoard event files, got none"):
        TensorBoard(tmp_path)


def test_a_port_in_use_is_not_taken(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.scalar("a", 1.0, 1)
    with socket.socket() as other:
        other.bind(("localhost", 0))
        other.listen()
        port = other.getsockname()[1]
        assert free_port(port) == 0
        with pytest.raises(ValueError, match=f"port must be free, got {port}, which is in use"):
            TensorBoard(tmp_path, port=port)
    assert free_port(port) == port


def test_a_port_has_a_range(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.scalar("a", 1.0, 1)
    with pytest.raises(ValueError, match="port must be between 0 and 65535, got 70000"):
        TensorBoard(tmp_path, port=70_000)


def test_what_tensorboard_says_when_it_fails_is_passed_on(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.scalar("a", 1.0, 1)
    with pytest.raises(OSError, match=r"TensorBoard did not start: .+"):
        TensorBoard(tmp_path, host="no.such.host.invalid")


def test_the_command_ends_tensorboard_when_it_is_ended(tmp_path: Path) -> None:
    with Monitor(tmp_path) as monitor:
        monitor.scalar("a", 1.0, 1)
    command = [sys.executable, "-m", "entity_encoder.agents", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        url = said.split()[3]
        assert ask(f"{url}data/environment")["data_location"] == str(tmp_path)
        process.terminate()
        assert process.wait() == 0
        assert process.stdout.read() == "stopped\n"
    with pytest.raises(urllib.error.URLError):
        ask(f"{url}data/environment")
