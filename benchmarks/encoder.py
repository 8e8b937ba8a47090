"""The encoder beside its peers: `python -m benchmarks.encoder [--quick] [--json FILE]`.

Every contender encodes the same sets; a row gives its median time, that time as a multiple of the
floor, and the most memory its tensors held. The floor is `torch.mm` of exactly the necessary
shapes on present entities (training: also both gradients), plus attention's operations at the
same rate. One process, interleaved rounds, medians: only ratios mean something.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.peers import SdpaPadded, TorchEncoder, make_ding
from benchmarks.timing import interleave, keep_large_blocks, peak_bytes
from entity_encoder import EntityTransformer

__all__ = ["Case", "Row", "main", "measure"]

FEATURES = 32
NETS = {"small": (64, 4, 128, 2), "medium": (128, 4, 512, 3)}  # d_model, heads, d_ff, layers


@dataclass(frozen=True)
class Case:
    """One combination to measure."""

    net: str
    batch: int
    slots: int
    fill: int  # per cent
    mode: str  # infer (eval, no grad), forward (train mode) or train (forward + backward)


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    net: str
    batch: int
    slots: int
    fill: int
    mode: str
    contender: str
    seconds: float
    floor_multiple: float
    peak_bytes: int
    large_blocks_kept: bool


def make_sets(case: Case, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw features (B, N, C) and a mask (B, N) with the wanted share of entities.

    100 %: all present; otherwise sizes uniform in 1..2*fill*N, so that half fill is 1..N.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(case.batch, case.slots, FEATURES, generator=generator)
    if case.fill == 100:
        return x, torch.ones(case.batch, case.slots, dtype=torch.bool)
    most = max(1, 2 * case.fill * case.slots // 100)
    sizes = torch.randint(1, most + 1, (case.batch, 1), generator=generator)
    return x, torch.arange(case.slots) < sizes


def make_models(net: str) -> dict[str, nn.Module]:
    """Build every contender with the same widths."""
    d_model, n_heads, d_ff, n_layers = NETS[net]
    ours = EntityTransformer(
        FEATURES, d_model=d_model, n_heads=n_heads, d_ff=d_ff, n_layers=n_layers
    )
    peers = {"di-engine": make_ding, "torch-transformer-encoder": TorchEncoder}
    models: dict[str, nn.Module] = {"entity-encoder": ours}
    for name, make in {**peers, "sdpa-padded": SdpaPadded}.items():
        models[name] = make(FEATURES, d_model, n_heads, d_ff, n_layers)
    return models


def make_floor(net: str, mask: Tensor, train: bool) -> tuple[Callable[[], None], float]:
    """Return the matrix products nobody can avoid, and attention's share on top of them."""
    d_model, _, d_ff, n_layers = NETS[net]
    entities = int(mask.sum())
    layer = [(d_model, 3 * d_model), (d_model, d_model), (d_model, d_ff), (d_ff, d_model)]
    shapes = [(FEATURES, d_model), *layer * n_layers]
    products = [
        (torch.randn(entities, a), torch.randn(a, b), torch.randn(entities, b)) for a, b in shapes
    ]
    linear = sum(2 * entities * a * b for a, b in shapes)
    sizes = mask.sum(1).double()
    attention = float((sizes**2).sum()) * 4 * d_model * n_layers

    def run() -> None:
        for x, weight, gradient in products:
            torch.mm(x, weight)
            if train:
                torch.mm(gradient, weight.T)
                torch.mm(x.T, gradient)

    return run, attention / linear


def make_work(model: nn.Module, mode: str, x: Tensor, mask: Tensor) -> Callable[[], object]:
    """Wrap one forward (and backward) of a contender."""

    def infer() -> object:
        model.eval()
        with torch.no_grad():
            return model(x, mask)

    def forward() -> object:
        model.train()
        return model(x, mask)

    def train() -> None:
        model.train()
        model.zero_grad()
        out = model(x, mask)
        out[mask].sum().backward()

    return {"infer": infer, "forward": forward, "train": train}[mode]


def measure(case: Case, *, rounds: int, kept: bool, memory: bool, budget: float) -> list[Row]:
    """Measure all contenders on one case."""
    x, mask = make_sets(case)
    work = {
        name: make_work(model, case.mode, x, mask) for name, model in make_models(case.net).items()
    }
    floor, extra = make_floor(case.net, mask, case.mode == "train")
    seconds = interleave({**work, "floor": floor}, rounds=rounds, budget=budget)
    bottom = seconds["floor"] * (1 + extra)
    rows = []
    for name, value in seconds.items():
        value = bottom if name == "floor" else value
        held = peak_bytes(work[name]) if memory and name in work else 0
        rows.append(
            Row(
                **asdict(case),
                contender=name,
                seconds=value,
                floor_multiple=value / bottom,
                peak_bytes=held,
                large_blocks_kept=kept,
            )
        )
    return rows


def print_rows(rows: list[Row]) -> None:
    """Print one case: each contender's time, floor multiple, how much slower than ours, memory."""
    ours = next(row.seconds for row in rows if row.contender == "entity-encoder")
    head = rows[0]
    kept = ", large blocks kept" if head.large_blocks_kept else ""
    print(
        f"\n{head.net} net, {head.batch} x {head.slots} slots, {head.fill} % filled, "
        f"{head.mode}{kept}"
    )
    for row in rows:
        print(
            f"  {row.contender:26} {row.seconds * 1e3:9.1f} ms {row.floor_multiple:6.2f} floors "
            f"{row.seconds / ours:6.2f} x ours {row.peak_bytes / 2**20:8.0f} MiB",
            flush=True,
        )


def cases(quick: bool) -> list[Case]:
    """List the combinations: a minute's worth, or all."""
    if quick:
        return [Case("small", 2048, n, 50, mode) for n in (16, 64) for mode in ("infer", "train")]
    sizes = itertools.product(NETS, (64, 2048), (16, 64, 128), (25, 50, 100))
    modes = ("infer", "forward", "train")
    return [Case(*size, mode) for size in sizes for mode in modes]


def main(argv: list[str] | None = None) -> list[Row]:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small net, half fill, a minute")
    parser.add_argument("--json", metavar="FILE", help="write one flat object a row")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds per case")
    parser.add_argument(
        "--keep-large-blocks",
        action="store_true",
        help="switch off the page faults of blocks above 32 MiB, for everybody",
    )
    parser.add_argument("--half", action="store_true", help="only half fill and large batches")
    parser.add_argument("--net", choices=list(NETS), help="only this net")
    parser.add_argument("--batch", type=int, help="only this batch size")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.keep_large_blocks:
        keep_large_blocks()
    rows: list[Row] = []
    for case in cases(args.quick):
        if (args.net and case.net != args.net) or (args.batch and case.batch != args.batch):
            continue
        if args.half and (case.fill, case.batch) != (50, 2048):
            continue
        new = measure(
            case,
            rounds=args.rounds,
            kept=args.keep_large_blocks,
            memory=not args.quick,
            budget=6.0 if args.quick else args.budget,
        )
        print_rows(new)
        rows += new
        if args.json:
            Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return rows


if __name__ == "__main__":
    main()
