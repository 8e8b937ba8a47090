"""What the default configuration learns: `python -m benchmarks.learning [TASK...]`.

Every task is trained with `PPOConfig()` and several seeds, evaluated for 200 deterministic
episodes, and tried on larger instances with the same weights. One JSON file a run stands under
`docs/results/learning/`; a run whose file exists is skipped and one that was interrupted goes on
from its checkpoint, so the table can be made in pieces. `--table` writes `docs/results/learning.md`
and the plots from what is there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from benchmarks.learning.table import result_path, write_plots, write_table
from benchmarks.learning.tasks import TASKS
from benchmarks.learning.training import train_once


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"among {', '.join(TASKS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, help="instead of each task's 1 M")
    parser.add_argument("--episodes", type=int, default=200, help="of each evaluation")
    parser.add_argument("--table", action="store_true", help="only write the table and the plots")
    args = parser.parse_args(argv)
    unknown = [name for name in args.tasks if name not in TASKS]
    if unknown:
        parser.error(f"TASK must be among {', '.join(TASKS)}, got {', '.join(unknown)}")
    for name in [] if args.table else args.tasks or TASKS:
        for seed in args.seeds:
            path = result_path(name, seed)
            if path.exists():
                print(f"{path} exists, skipped")
                continue
            row = train_once(name, seed, steps=args.steps, episodes=args.episodes)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row, indent=1) + "\n")
    if args.table:
        write_plots()
    print(write_table())


if __name__ == "__main__":
    main()
