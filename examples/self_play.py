"""Command an army against one's own past: versions of the policy are frozen, fought and rated.

The run begins against the script "nearest", whose Elo rating is 1000 by definition. At the end all
versions stand in a table, and the last one is measured against both scripts.

python examples/self_play.py                           # about 6 minutes on one core
python examples/self_play.py --steps 2_000_000 --every 200_000 --run-dir runs/self-play
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import SelfPlay

TASK = "Entity/Skirmish-v0"


def main(arguments: Sequence[str] | None = None) -> SelfPlay:
    """Train, rate and measure; return the versions with their ratings."""
    parser = argparse.ArgumentParser(description="Learn Skirmish by self-play.")
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--every", type=int, default=50_000, help="steps between two versions")
    parser.add_argument("--units", type=int, default=5, help="at most this many a side")
    parser.add_argument("--episodes", type=int, default=200, help="in each measurement at the end")
    parser.add_argument("--run-dir", help="keep checkpoints, the log and all versions here")
    args = parser.parse_args(arguments)

    self_play = SelfPlay(every=args.every)
    agent = PPO(
        TASK,
        PPOConfig(total_steps=args.steps),
        run_dir=args.run_dir,
        env_kwargs={"max_units": args.units},
        callbacks=[self_play],
    ).learn()
    print(f"  version  Elo rating\n{self_play.table()}")
    for script in ("nearest", "focus fire"):
        result = agent.evaluate(args.episodes, env_kwargs={"opponent": script})
        assert result.success is not None  # Skirmish reports who won
        print(f"wins against {script!r}: {result.success.mean:.2f}")
    return self_play


if __name__ == "__main__":
    main()
