"""PPO trainers beside each other: `python -m benchmarks.ppo [--quick] [--json FILE]`.

All learn one task (16 slots of 8 features, about half of them filled, 5 actions) with the same
two-layer transformer, the same samples per rollout and gradient step, in fp32 and one process:
Stable-Baselines3, skrl and TorchRL with the padded `nn.TransformerEncoder` that their users write,
a loop in the style of CleanRL with the same, and ours. They take turns, one rollout and update at
a time, so that a busy machine slows all alike; medians are reported.

CPU seconds are those of the process, all threads. Shares are of them too: the task's own steps,
the update, and the rest, which is choosing actions and storing what happened.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.ppo.setting import Setting, Trainer

__all__ = ["CONTENDERS", "Row", "main", "measure"]

#: Name -> module and class, and the distribution whose version is printed.
CONTENDERS: dict[str, tuple[str, str, str]] = {
    "entity-encoder": ("benchmarks.ppo.ours", "Ours", "entity-encoder"),
    "sb3": ("benchmarks.ppo.sb3", "StableBaselines", "stable-baselines3"),
    "cleanrl": ("benchmarks.ppo.cleanrl", "Loop", "torch"),
    "skrl": ("benchmarks.ppo.skrl", "Skrl", "skrl"),
    "torchrl": ("benchmarks.ppo.torchrl", "TorchRL", "torchrl"),
}


@dataclass(frozen=True)
class Row:
    """What one trainer did."""

    trainer: str
    version: str
    device: str
    steps_per_cpu_second: float
    steps_per_second: float
    env_share: float
    inference_share: float
    update_share: float
    samples: int
    iterations: int


def make_trainers(names: Sequence[str], setting: Setting) -> dict[str, Trainer]:
    """Build the contenders that can be imported; name the others on stderr."""
    trainers: dict[str, Trainer] = {}
    for name in names:
        module, kind, _ = CONTENDERS[name]
        try:
            make: Callable[[Setting], Trainer] = getattr(import_module(module), kind)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        trainers[name] = make(setting)
    return trainers


def measure(names: Sequence[str], setting: Setting, iterations: int) -> list[Row]:
    """Let the contenders take turns, and return what each achieved.

    Args:
        names: Of `CONTENDERS`.
        setting: Sizes and coefficients of all.
        iterations: Rollouts and updates of each.
    """
    trainers = make_trainers(names, setting)
    turns: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in trainers}
    for _ in range(iterations):
        for name, trainer in trainers.items():
            trainer.meter.spent.clear()
            wall, cpu = time.perf_counter(), time.process_time()
            trainer.train(1)
            if setting.device != "cpu":
                torch.cuda.synchronize()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            spent = trainer.meter.spent
            turns[name].append((cpu, wall, spent["environment"] / cpu, spent["update"] / cpu))
    rows = []
    for name, found in turns.items():
        cpu, wall, env, update = (statistics.median(column) for column in zip(*found, strict=True))
        rows.append(
            Row(
                trainer=name,
                version=version(CONTENDERS[name][2]),
                device=setting.device,
                steps_per_cpu_second=setting.rollout / cpu,
                steps_per_second=setting.rollout / wall,
                env_share=env,
                inference_share=1 - env - update,
                update_share=update,
                samples=setting.rollout,
                iterations=iterations,
            )
        )
    return rows


def show(rows: Sequence[Row]) -> str:
    """Write a table: rates, how much faster ours is, and where the time goes."""
    ours = next((r.steps_per_cpu_second for r in rows if r.trainer == "entity-encoder"), None)
    names = ("trainer", "version", "steps/CPU s", "steps/s", "ours is", "env", "infer", "update")
    widths = (-15, -9, 11, 9, 8, 6, 6, 6)
    lines = [
        " ".join(
            name.ljust(-width) if width < 0 else name.rjust(width)
            for name, width in zip(names, widths, strict=True)
        )
    ]
    for row in rows:
        ratio = "" if ours is None else f"{ours / row.steps_per_cpu_second:.2f} x"
        lines.append(
            f"{row.trainer:15} {row.version:9} {row.steps_per_cpu_second:11,.0f} "
            f"{row.steps_per_second:9,.0f} {ratio:>8} {row.env_share:6.0%} "
            f"{row.inference_share:6.0%} {row.update_share:6.0%}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ppo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trainers", nargs="*", help=f"of {', '.join(CONTENDERS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="two iterations each")
    parser.add_argument("--json", metavar="FILE", help="write one flat object for each trainer")
    parser.add_argument("--iterations", type=int, default=6, help="of each trainer (default: 6)")
    defaults = Setting()
    for name in ("device", "num_envs", "steps", "d_model", "threads"):
        default = getattr(defaults, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            help=f"default: {default}",
        )
    args = parser.parse_args(arguments)
    unknown = sorted(set(args.trainers) - set(CONTENDERS))
    if unknown or args.iterations < 1:
        parser.error(
            f"trainers must be of {', '.join(CONTENDERS)} and iterations at least 1, got "
            f"{unknown} and {args.iterations}"
        )
    setting = dataclasses.replace(
        defaults,
        device=args.device,
        num_envs=args.num_envs,
        steps=args.steps,
        d_model=args.d_model,
        d_ff=2 * args.d_model,
        threads=args.threads,
    )
    torch.set_num_threads(args.threads)
    print(
        f"torch {torch.__version__}, {setting.num_envs} environments x {setting.steps} steps, "
        f"d_model {setting.d_model}, {setting.device}, {setting.threads} thread(s)",
        flush=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, of their own affairs
        rows = measure(
            args.trainers or list(CONTENDERS), setting, 2 if args.quick else args.iterations
        )
    print(show(rows))
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return rows


if __name__ == "__main__":
    main()
