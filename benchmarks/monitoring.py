"""What watching a training costs: `python -m benchmarks.monitoring [--env ID] [--rounds N]`.

Two agents of one seed train in turn, an iteration each: one writes the default TensorBoard log, the
other writes nothing. The ratio of their median CPU seconds, in which the thread that writes counts
and other programs do not, and the share of the wall time that passes inside the logging calls say
what the default costs. Then each thing that is off by default is timed alone, with the interval at
which it would take 2 % of the training time. Only ratios mean something.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.announcing import log, open_monitor
from entity_encoder.agents.callbacks import AttentionMaps, Embeddings, Evaluation, Film, Histograms
from entity_encoder.agents.iteration import iterate
from entity_encoder.agents.progress import Progress

__all__ = ["main"]

SHARE = 0.02  # of the training time, at most


class _Training:
    """An agent that is trained one iteration at a time."""

    def __init__(self, env: str, run_dir: Path | None) -> None:
        config = PPOConfig(total_steps=10**9, threads=1, device="cpu")
        self.agent = PPO(env, config, run_dir=run_dir, progress=False)
        self.agent.monitor = open_monitor(self.agent)
        self.agent._start()
        self.progress = Progress(config.total_steps, 0, enabled=False)
        self.processor: list[float] = []  # CPU seconds of each iteration with its logging
        self.share: list[float] = []  # of its wall time that passes inside the logging calls

    def step(self) -> None:
        """Train and log once."""
        processor, begin = time.process_time(), time.perf_counter()
        done = iterate(self.agent)
        learned = time.perf_counter()
        log(self.agent, done, self.agent.monitor, self.progress)
        end = time.perf_counter()
        self.processor.append(time.process_time() - processor)
        self.share.append((end - learned) / (end - begin))


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure, print, and return the ratio and the share of the default log."""
    parser = argparse.ArgumentParser(description="Measure what watching a training costs.")
    parser.add_argument("--env", default="Entity/Minefield-v0")
    parser.add_argument("--rounds", type=int, default=40, help="iterations of each agent")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        pair = [_Training(args.env, Path(folder) / "run"), _Training(args.env, None)]
        for number in range(args.rounds + 1):
            for training in pair if number % 2 else reversed(pair):
                training.step()
        logged, silent = pair
        # The first iteration warms up.
        pairs = list(zip(logged.processor[1:], silent.processor[1:], strict=True))
        iteration = statistics.median(seconds for _, seconds in pairs)
        ratio = statistics.median(seconds for seconds, _ in pairs) / iteration
        low, _, high = statistics.quantiles((a / b for a, b in pairs), n=4)
        share = statistics.median(logged.share[1:])
        size = sum(f.stat().st_size for f in (Path(folder) / "run").glob("events*"))
        print(f"{args.env}, {args.rounds} iterations of {iteration * 1e3:.0f} CPU ms each, in turn")
        print(f"default log: {share:.3%} of the time passes in logging calls")
        print(f"default log: ratio of medians {ratio:.3f} (pairs, quartiles: {low:.3f}-{high:.3f})")
        print(f"default log: {size / args.rounds / 1e3:.1f} kB an iteration\n")
        print("on request              once     every, to cost 2 %")
        for name, seconds in _on_request(logged.agent).items():
            steps = seconds / SHARE / iteration * logged.agent.config.rollout_size
            print(f"{name:18} {seconds * 1e3:7.0f} ms   {steps:12,.0f} steps")
        logged.agent.monitor.close()
    return {"ratio": ratio, "share": share}


def _on_request(agent: PPO) -> dict[str, float]:
    """Time each callback that is off by default, once after it has warmed up."""
    calls: dict[str, Callable[[], object]] = {
        "100 evaluations": lambda: Evaluation().finish(agent),
        "film, 3 episodes": lambda: Film().finish(agent),
        "attention maps": lambda: AttentionMaps().finish(agent),
        "histograms": lambda: _histograms(agent),
        "projector table": lambda: Embeddings().finish(agent),
    }
    seconds = {}
    for name, call in calls.items():
        agent.steps += agent.config.rollout_size  # steps of a log rise
        call()
        agent.steps += agent.config.rollout_size
        begin = time.process_time()
        call()
        seconds[name] = time.process_time() - begin
    return seconds


def _histograms(agent: PPO) -> None:
    Histograms(agent.config.rollout_size)(agent, {})


if __name__ == "__main__":
    main()
