"""The encoder inside other libraries: `python -m benchmarks.integrations [LIBRARY...]`.

One task, the same number of steps, the same settings of PPO in each library, twice: with the
encoder through our integration, and with what the library does with a Dict by itself, which is to
flatten it. Our own PPO stands beside them. The score is the share of right answers over the last
fifth of training, with exploring actions.

    python -m benchmarks.integrations --seeds 2 --table     # everything that is installed
    python -m benchmarks.integrations sb3 --quick --json    # a look
    .venvs/rllib/bin/python -m benchmarks.integrations rllib --json >> rllib.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.library_trainers import (
    run_ours,
    run_rllib,
    run_sb3,
    run_skrl,
    run_tianshou,
    run_torchrl,
)
from benchmarks.shuffled_tiles import BATCH, REWARDS

__all__ = ["LIBRARIES", "main", "measure", "show"]

#: Name of the library -> module that must be there, and what trains.
LIBRARIES: dict[str, tuple[str, Callable[[int, int, bool], None]]] = {
    "entity_encoder.agents": ("entity_encoder", run_ours),
    "sb3": ("stable_baselines3", run_sb3),
    "skrl": ("skrl", run_skrl),
    "torchrl": ("torchrl", run_torchrl),
    "tianshou": ("tianshou", run_tianshou),
    "rllib": ("ray", run_rllib),
}


def measure(library: str, *, encoder: bool, seed: int, steps: int) -> dict[str, Any]:
    """Train once and return the score of the last fifth of the steps."""
    REWARDS.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LIBRARIES[library][1](steps, seed, encoder)
    last = REWARDS[: steps // BATCH * BATCH][-steps // 5 :]
    return {
        "library": library,
        "features": "encoder" if encoder else "flat",
        "seed": seed,
        "steps": steps // BATCH * BATCH,
        "score": round(float(np.mean(last)), 4),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - wall, 1),
    }


def show(results: Sequence[dict[str, Any]]) -> str:
    """Write a table in Markdown: mean score over seeds, with the lowest and the highest."""
    lines = ["| library | steps | with the encoder | flattened |", "|---|---|---|---|"]
    for library in LIBRARIES:
        mine = [result for result in results if result["library"] == library]
        if not mine:
            continue
        cells = []
        for kind in ("encoder", "flat"):
            scores = [result["score"] for result in mine if result["features"] == kind]
            cells.append(
                f"{np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})" if scores else ""
            )
        lines.append(f"| {library} | {mine[0]['steps']:,} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measure, print, and return the results."""
    parser = argparse.ArgumentParser(description="The encoder inside other libraries.")
    parser.add_argument("libraries", nargs="*", help=f"of {list(LIBRARIES)}; default: installed")
    parser.add_argument("--steps", type=int, default=20_480)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--features", choices=("both", "encoder", "flat"), default="both")
    parser.add_argument("--quick", action="store_true", help="two rollouts, to see that it runs")
    parser.add_argument("--json", action="store_true", help="one line of JSON per training")
    parser.add_argument("--table", nargs="*", help="print a table, also of these .jsonl files")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    steps = 2 * BATCH if args.quick else args.steps
    chosen = args.libraries
    if not chosen and not args.table:
        chosen = [name for name, (module, _) in LIBRARIES.items() if _installed(module)]
    results = []
    for library in chosen:
        for encoder in {"both": (True, False), "encoder": (True,), "flat": (False,)}[args.features]:
            for seed in range(1, args.seeds + 1):
                if library == "entity_encoder.agents" and not encoder:
                    continue
                result = measure(library, encoder=encoder, seed=seed, steps=steps)
                results.append(result)
                print(json.dumps(result) if args.json else result, flush=True)
    if args.table is not None:
        for path in args.table:
            with open(path) as lines:
                results += [json.loads(line) for line in lines]
        print(show(results))
    return results


def _installed(module: str) -> bool:
    from importlib.util import find_spec

    if find_spec(module) is None:
        print(f"{module} is not installed: left out", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    main()
