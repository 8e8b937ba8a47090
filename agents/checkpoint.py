"""Checkpoints: a folder that is always loadable, holds no code, and opens on any machine.

A folder holds `checkpoint.json` (what it is of, and which files belong to it), one
`weights-<step>.safetensors` and one `state-<step>.pt` (optimiser, random numbers, counters, ...).
The new files are complete on the disk before `checkpoint.json` is replaced, in one step of the
file system, to name them; the old ones are removed after that. So a process that is killed at any
moment leaves a folder that opens.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import pickle
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

__all__ = [
    "Checkpoint",
    "exists",
    "load_checkpoint",
    "load_state",
    "plain",
    "save_checkpoint",
    "save_state",
    "unwrapped_names",
]

MANIFEST = "checkpoint.json"
FORMAT = 2  # raised when an older checkpoint would load but compute something else

# What torch.compile and DistributedDataParallel put before the names of a module's parameters.
PREFIXES = ("_orig_mod.", "module.")


@dataclass(frozen=True)
class Checkpoint:
    """What a folder held.

    Attributes:
        weights: Parameters and buffers by name, on the CPU.
        state: Everything else, tensors on the CPU.
        about: The content of `checkpoint.json`: schema, spaces, settings, step.
        path: The folder.
    """

    weights: dict[str, Tensor]
    state: dict[str, Any]
    about: dict[str, Any]
    path: Path


def save_checkpoint(
    path: str | Path,
    *,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Any],
    about: Mapping[str, Any],
) -> Path:
    """Write a checkpoint into a folder, replacing the one in it.

    Args:
        path: The folder; made when missing.
        weights: Parameters and buffers by name.
        state: Numbers, strings, tensors, arrays, and lists, tuples and dicts of them.
        about: What the checkpoint is of, as JSON; holds at least "step".

    Returns:
        The folder.

    Raises:
        TypeError: When `state` holds something that only pickled code could restore.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    generation = _next_generation(path)
    names = {
        "weights": f"weights-{about['step']}-{generation}.safetensors",
        "state": f"state-{about['step']}-{generation}.pt",
    }
    here = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    save_file(here, path / names["weights"])
    _sync(path / names["weights"])
    torch.save(plain(state), path / names["state"])
    _sync(path / names["state"])
    content = {"format": FORMAT, "generation": generation, "files": names, **about}
    _replace(path / MANIFEST, json.dumps(content, indent=1).encode())
    _remove_others(path, set(names.values()))
    return path


def exists(path: str | Path) -> bool:
    """Whether a folder holds a complete checkpoint."""
    return (Path(path) / MANIFEST).is_file()


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint; no code in it is run.

    Raises:
        FileNotFoundError: When there is none, naming what the folder holds.
        ValueError: When it is damaged, of another format, or holds pickled code.
    """
    path = Path(path)
    for attempt in range(5):
        about = _read_manifest(path)
        try:
            weights = load_file(path / about["files"]["weights"])
            state = load_state(path / about["files"]["state"])
        except FileNotFoundError as error:
            # A run that is being trained may have replaced the files since the manifest was read.
            if attempt == 4:
                raise ValueError(f"checkpoint {path} is damaged: {error}") from error
            continue
        except Exception as error:
            if isinstance(error, ValueError):
                raise
            raise ValueError(f"checkpoint {path} is damaged: {error}") from error
        return Checkpoint(weights, state, about, path)
    raise AssertionError("unreachable")


def save_state(path: str | Path, state: Any) -> None:
    """Write plain values and tensors into one file, atomically.

    Raises:
        TypeError: When it holds something that only pickled code could restore.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(plain(state), temporary)
    _sync(temporary)
    os.replace(temporary, path)


def load_state(path: str | Path) -> Any:
    """Read what `save_state` wrote; tensors come to the CPU.

    Raises:
        ValueError: When the file holds pickled code, or is damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch remarks on foreign files before it refuses them
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path} must hold plain values and tensors only, and was refused: "
            f"{str(error).splitlines()[0]}"
        ) from error


def plain(value: Any, place: str = "state") -> Any:
    """Turn a value into plain Python and tensors, which load without running code.

    NumPy arrays become tensors, NumPy scalars numbers, dataclasses dicts, paths strings, deques
    lists, enumerations their names.

    Raises:
        TypeError: For anything else, naming its place.
    """
    match value:
        case None | bool() | str() | bytes():
            return value
        case enum.Enum():
            return value.name
        case int():
            return int(value)
        case float():
            return float(value)
        case Tensor():
            return value.detach().to("cpu", copy=True)
        case np.ndarray():
            return torch.from_numpy(np.array(value))
        case np.generic():
            return value.item()
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {plain(k, place): plain(v, f"{place}[{k!r}]") for k, v in value.items()}
        case tuple():
            return tuple(plain(v, f"{place}[{i}]") for i, v in enumerate(value))
        case list() | deque():
            return [plain(v, f"{place}[{i}]") for i, v in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: plain(getattr(value, f.name), f"{place}.{f.name}") for f in fields}
    raise TypeError(
        f"{place} must be made of numbers, strings, tensors, arrays and containers of them, got "
        f"{type(value).__module__}.{type(value).__qualname__}; a checkpoint never holds code"
    )


def unwrapped_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take off what wrappers put before parameter names, so that either kind loads the other."""
    found = {}
    for name, value in weights.items():
        while name.startswith(PREFIXES):
            name = name.partition(".")[2]
        found[name] = value
    return found


def _read_manifest(path: Path) -> dict[str, Any]:
    if not exists(path):
        inside = sorted(p.name for p in path.iterdir())[:8] if path.is_dir() else "no such folder"
        hint = ""
        if exists(path / "checkpoint"):
            hint = f"; did you mean {str(path / 'checkpoint')!r}?"
        raise FileNotFoundError(f"{path} must hold {MANIFEST}, got {inside}{hint}")
    try:
        about: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"checkpoint {path} is damaged: {MANIFEST}: {error}") from error
    if about.get("format") != FORMAT:
        raise ValueError(
            f"checkpoint {path} must have format {FORMAT}, got {about.get('format')!r}; it was "
            "written by another version of entity-encoder"
        )
    return about


def _next_generation(path: Path) -> int:
    """Number checkpoints, so that new files never share a name with those in force."""
    if not exists(path):
        return 0
    try:
        return int(json.loads((path / MANIFEST).read_text()).get("generation", 0)) + 1
    except (json.JSONDecodeError, AttributeError):
        return 0


def _sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with open(path, "rb+") as stream:
        os.fsync(stream.fileno())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    _sync(temporary)
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name itself
    finally:
        os.close(folder)


def _remove_others(path: Path, keep: set[str]) -> None:
    """Remove what earlier checkpoints, or attempts that were killed, left behind."""
    for pattern in ("weights-*.safetensors", "state-*.pt", f".{MANIFEST}.*"):
        for old in path.glob(pattern):
            if old.name not in keep:
                old.unlink(missing_ok=True)
