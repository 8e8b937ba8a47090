"""Files for TensorBoard's projector: vectors, what is known of each, and where both are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

__all__ = ["write_projector"]

FOLDER = "projector"


def write_projector(
    run_dir: Path, tag: str, vectors: Any, labels: Mapping[str, Sequence[Any]], step: int
) -> None:
    """Write one table of vectors; the one that the tag had before is replaced.

    Args:
        run_dir: Directory of the run.
        tag: Name of the table, a file's name.
        vectors: (K, D) numbers; rows with NaN or infinity are left out, for the page cannot
            read them.
        labels: K texts in each column, for colours and search.
        step: Environment steps learned from so far; shown behind the tag.

    Raises:
        ValueError: A column is not as long as the table.
    """
    rows = torch.as_tensor(vectors).detach().float().cpu()  # (K, D)
    for name, column in labels.items():
        if len(column) != len(rows):
            raise ValueError(
                f"labels[{name!r}] must have one text for each of {len(rows)} vectors, "
                f"got {len(column)}"
            )
    kept = torch.nonzero(rows.isfinite().all(1)).flatten().tolist()
    table = [_line(f"{x:.6g}" for x in rows[k].tolist()) for k in kept]
    header = [_line(labels)] if len(labels) > 1 else []  # one column is read without a heading
    known = header + [_line(str(column[k]) for column in labels.values()) for k in kept]
    folder = run_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / f"{tag}.tsv", table)
    _replace(folder / f"{tag}_labels.tsv", known)
    config = [
        "embeddings {",
        f'  tensor_name: "{tag} at step {step}"',
        f'  tensor_path: "{FOLDER}/{tag}.tsv"',
        f'  metadata_path: "{FOLDER}/{tag}_labels.tsv"',
        "}",
    ]
    _replace(folder / f"{tag}.pbtxt", config)
    every = [part.read_text() for part in sorted(folder.glob("*.pbtxt"))]
    _replace(run_dir / "projector_config.pbtxt", ["".join(every).rstrip("\n")])


def _line(cells: Any) -> str:
    return "\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in cells)


def _replace(path: Path, lines: Sequence[str]) -> None:
    """Write a file in one step, for TensorBoard may be reading."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(temporary, path)
