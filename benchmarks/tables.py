"""Write the pages' tables from what the benchmarks measured: `python -m benchmarks.tables`.

Each benchmark writes its rows as JSON into `docs/results/`; here they become Markdown, and a plot
for the encoder. Nothing is measured.

    python -m benchmarks.encoder --json docs/results/encoder.json
    python -m benchmarks.encoder --half --keep-large-blocks --json docs/results/encoder-kept.json
    python -m benchmarks.ppo --json docs/results/ppo.json
    python -m benchmarks.envs --json docs/results/envs.json
    python -m benchmarks.integrations --json > docs/results/integrations.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

__all__ = ["encoder_table", "envs_table", "main", "ppo_table"]

RESULTS = Path("docs/results")
Row = dict[str, Any]

CASE = ("net", "batch", "slots", "fill", "mode")
PEERS = ("di-engine", "torch-transformer-encoder", "sdpa-padded")
MODES = {"infer": "inference", "forward": "forward", "train": "forward and backward"}


def encoder_table(rows: Iterable[Row], kept: Iterable[Row] = ()) -> str:
    """Compare the encoder with its peers, one line a case; then with page faults switched off."""
    text = _encoder_lines(rows)
    kept = list(kept)
    if kept:
        text += (
            "\nWith blocks above 32 MiB kept by the allocator, so that nobody pays page faults for "
            "them:\n\n" + _encoder_lines(kept)
        )
    return text


def _encoder_lines(rows: Iterable[Row]) -> str:
    head = ["net", "sets x slots", "filled", "pass", "ms", "floors", "DI-engine"]
    head += ["`nn.TransformerEncoder`", "padded SDPA", "MiB: ours, DI-engine"]
    lines = []
    for case, found in groupby(rows, key=lambda row: tuple(row[key] for key in CASE)):
        by_name = {row["contender"]: row for row in found}
        ours = by_name["entity-encoder"]
        times = [f"{by_name[peer]['seconds'] / ours['seconds']:.2f} x" for peer in PEERS]
        memory = [f"{by_name[n]['peak_bytes'] / 2**20:.0f}" for n in ("entity-encoder", PEERS[0])]
        net, batch, slots, fill, mode = case
        cells = [net, f"{batch} x {slots}", f"{fill} %", MODES[mode]]
        cells += [f"{ours['seconds'] * 1e3:.1f}", f"{ours['floor_multiple']:.2f}", *times]
        lines.append([*cells, ", ".join(memory)])
    return _table(head, lines)


def encoder_plot(rows: Sequence[Row], out: Path) -> None:
    """Draw multiples of the floor by number of slots: half-filled large batches."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = [(net, mode) for net in ("small", "medium") for mode in ("infer", "train")]
    names = {"entity-encoder": "#0072B2", PEERS[0]: "#D55E00", PEERS[1]: "#009E73"}
    names[PEERS[2]] = "#CC79A7"
    for axis, (net, mode) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        mine = [
            row
            for row in rows
            if (row["net"], row["mode"], row["fill"], row["batch"]) == (net, mode, 50, 2048)
        ]
        sizes = sorted({row["slots"] for row in mine})
        for i, (name, colour) in enumerate(names.items()):
            heights = [
                row["floor_multiple"]
                for size in sizes
                for row in mine
                if row["slots"] == size and row["contender"] == name
            ]
            places = [place + 0.2 * (i - 1.5) for place in range(len(heights))]
            axis.bar(places, heights, 0.19, color=colour, label=name)
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axis.set_xticks(range(len(sizes)), [f"{size} slots" for size in sizes])
        axis.set_title(f"{net} net, {MODES[mode]}")
        axis.set_ylabel("multiples of the floor")
    figure.axes[0].legend(fontsize=8)
    figure.suptitle("2,048 sets, half of the slots filled: 1 is the necessary matrix products")
    figure.savefig(out.with_suffix(".png"), dpi=110)
    # The same rows give the same file.
    with matplotlib.rc_context({"svg.hashsalt": out.name}):
        figure.savefig(out.with_suffix(".svg"), metadata={"Date": None})


def ppo_table(rows: Sequence[Row]) -> str:
    """Compare the trainers, one line each."""
    ours = next(row for row in rows if row["trainer"] == "entity-encoder")
    head = ["trainer", "version", "steps per CPU-second", "steps per second", "ours is"]
    lines = []
    for row in rows:
        ratio = ours["steps_per_cpu_second"] / row["steps_per_cpu_second"]
        shares = [f"{row[f'{part}_share']:.0%}" for part in ("env", "inference", "update")]
        speeds = [f"{row[name]:,.0f}" for name in ("steps_per_cpu_second", "steps_per_second")]
        lines.append([row["trainer"], row["version"], *speeds, f"{ratio:.2f} x", *shares])
    return _table([*head, "environment", "inference", "update"], lines)


def envs_table(rows: Sequence[Row]) -> str:
    """List the environments' speeds, one line a task and size."""
    head = ["task", "environments", "steps per CPU-second", "without observation"]
    lines = []
    for row in rows:
        speeds = [f"{row[name]:,.0f}" for name in ("with_observation", "without_observation")]
        single = f"{row['sync']:,.0f} ({row['single']})"
        times = f"{row['times_sync']:,.0f} x"
        lines.append([row["task"], f"{row['num_envs']:,}", *speeds, single, times])
    return _table([*head, "single environments", "ours is"], lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _read(name: str) -> list[Row]:
    path = RESULTS / name
    if not path.exists():
        return []
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    rows: list[Row] = json.loads(text)
    return rows


def main() -> list[Path]:
    """Write what can be written, and return the files."""
    from benchmarks.integrations import show

    written = []
    encoder, kept = _read("encoder.json"), _read("encoder-kept.json")
    tables: dict[str, tuple[list[Row], Callable[[], str]]] = {
        "encoder": (encoder, lambda: encoder_table(encoder, kept)),
        "ppo": (_read("ppo.json"), lambda: ppo_table(_read("ppo.json"))),
        "envs": (_read("envs.json"), lambda: envs_table(_read("envs.json"))),
        "integrations": (
            _read("integrations.jsonl"),
            lambda: show(_read("integrations.jsonl")) + "\n",
        ),
    }
    for name, (rows, write) in tables.items():
        if rows:
            path = RESULTS / f"{name}.md"
            path.write_text(write())
            written.append(path)
            print(f"wrote {path}")
    if encoder:
        encoder_plot(encoder, RESULTS / "encoder")
    return written


if __name__ == "__main__":
    main()
