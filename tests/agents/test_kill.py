"""SIGKILL at any moment: what is on the disk opens, and training goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# One interpreter imports everything once; each run is a fork of it that has not computed yet.
DRIVER = """
    import os, random, select, signal, sys, time
    from pathlib import Path
    import torch
    import torch._dynamo, torch.utils.tensorboard, entity_encoder.agents.monitor.protos
    torch.set_num_threads(1)
    from entity_encoder.agents import PPO, PPOConfig
    from entity_encoder.agents.checkpoint import exists, load_checkpoint
    from tests.cases.toys import Toy

    kills, folder = int(sys.argv[1]), Path(sys.argv[2])
    total = 10_000 * 18
    config = PPOConfig(num_envs=3, rollout_steps=6, epochs=1, d_model=8, n_heads=2, n_layers=1,
                       checkpoint_every=1, threads=1, total_steps=total)

    def train(pipe):
        tell = [lambda agent, _: os.write(pipe, b"x") and None]
        common = dict(run_dir=folder, callbacks=tell, progress=False)
        if exists(folder / "checkpoint"):
            agent = PPO.load(folder / "checkpoint", [Toy] * 3, **common)
        else:
            agent = PPO([Toy] * 3, config, **common)
        agent.learn()

    chance = random.Random(int(sys.argv[3]))
    reached = 0
    for kill in range(kills):
        mine, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.close(mine)
            try:
                train(theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        # Let it come to some update, then to any moment within the next one.
        begin, wanted, got = time.monotonic(), chance.randrange(1, 5), 0
        while got < wanted:
            part = os.read(mine, 64)
            assert part, "training ended by itself"
            got += len(part)
        pace = (time.monotonic() - begin) / got
        time.sleep(chance.random() * min(pace, 0.2))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        while got % 64 == 0 and os.read(mine, 64):
            pass
        os.close(mine)
        step = load_checkpoint(folder / "checkpoint").about["step"]
        assert step >= reached + 18 * (wanted - 1), (step, reached, wanted)
        reached = step
    resumed = PPO.load(folder / "checkpoint", [Toy] * 3, progress=False,
                       total_steps=reached + 18)
    assert resumed.learn().steps == reached + 18
    names = {p.suffix for p in (folder / "checkpoint").iterdir()}
    assert names <= {".json", ".pt", ".safetensors"}, names
    print("reached", reached)
"""


def run(kills: int, folder: Path, seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(kills), str(folder), str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
def test_twenty_kills_at_random_moments_lose_no_checkpoint(tmp_path: Path) -> None:
    assert "reached" in run(20, tmp_path / "run", seed=1)
