"""Training by torchrun: two processes, one run directory, a resume, and a process that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents.checkpoint import load_checkpoint

ROOT = Path(__file__).parents[2]

SCRIPT = """
    import os, sys, json
    import torch
    torch.set_num_threads(1)
    from entity_encoder.agents import PPO, PPOConfig
    from entity_encoder.agents.checkpoint import exists

    folder, updates, dies_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    def watch(agent, metrics):
        if agent.iteration == dies_at and agent.ranks.rank == 1:
            os._exit(9)
    size = 2 * 4 * 6
    settings = dict(num_envs=4, rollout_steps=6, epochs=2, d_model=8, n_heads=2, n_layers=1,
                    total_steps=updates * size, threads=1, checkpoint_every=1,
                    learning_rate_schedule="constant", entropy_schedule="constant")
    common = dict(callbacks=[watch], progress=False)
    if exists(folder + "/checkpoint"):
        agent = PPO.load(folder + "/checkpoint", total_steps=updates * size, **common)
        assert not agent.notes, agent.notes
    else:
        agent = PPO("Entity/Minefield-v0", PPOConfig(**settings), run_dir=folder, **common)
    agent.learn()
    seen = agent.envs.observation["vehicle"].flatten().tolist()
    weights = [float(p.detach().double().sum()) for p in agent.policy.parameters()]
    with open(f"{folder}/{agent.ranks.rank}.json", "w") as stream:
        json.dump({"steps": agent.steps, "weights": weights, "seen": seen}, stream)
"""


def torchrun(folder: Path, updates: int, dies_at: int = -1) -> subprocess.CompletedProcess[str]:
    script = folder.parent / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", str(script), str(folder), str(updates), str(dies_at)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def outcome(folder: Path) -> list[dict[str, object]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.slow
def test_two_processes_train_one_policy_and_resume_bit_for_bit(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert torchrun(whole, 4).returncode == 0
    for updates in (2, 4):
        done = torchrun(halves, updates)
        assert done.returncode == 0, done.stderr
    first, second = outcome(whole)
    assert first["steps"] == second["steps"] == 4 * 48
    assert first["weights"] == second["weights"]
    assert first["seen"] != second["seen"]  # environments of their own
    assert outcome(halves) == [first, second]
    assert len(list(whole.glob("events.*"))) == 1  # rank 0 alone writes
    log = EventAccumulator(str(halves))
    log.Reload()
    assert [e.step for e in log.Scalars("loss/policy")] == [48, 96, 144, 192]


@pytest.mark.slow
def test_a_process_that_dies_ends_all_and_loses_no_checkpoint(tmp_path: Path) -> None:
    start = time.monotonic()
    done = torchrun(tmp_path / "run", 1000, dies_at=3)
    assert done.returncode != 0
    assert "exitcode  : 9" in done.stderr or "exitcode: 9" in done.stderr
    assert time.monotonic() - start < 600  # no timeout of the process group was waited for
    saved = load_checkpoint(tmp_path / "run" / "checkpoint")
    assert saved.about["step"] >= 2 * 48
    assert all(torch.isfinite(x).all() for x in saved.weights.values())
