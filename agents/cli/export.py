"""Write a trained policy as a file that runs without this package."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from entity_encoder.agents.cli.defaults import find_checkpoint

if TYPE_CHECKING:
    from entity_encoder.agents.policy import EntityPolicy

__all__ = ["add_options", "run"]

EXAMPLES = """examples:
  entity-encoder export runs/minefield-seed1 policy.onnx     for ONNX Runtime, anywhere
  entity-encoder export runs/minefield-seed1 --onnx FILE     the same, whatever FILE ends in
  entity-encoder export runs/minefield-seed1 policy.pt2      for torch.export.load

The file takes the observation's keys as inputs and returns the most probable action, the
probabilities and the value. Batch size and numbers of slots stay free.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help="run directory, or a checkpoint in one")
    parser.add_argument("out", nargs="?", help="file to write, .onnx or .pt2")
    parser.add_argument("--onnx", metavar="FILE", help="file to write as ONNX")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Export, and name inputs and outputs."""
    from entity_encoder.agents.saved import load_policy

    if (options.out is None) == (options.onnx is None):
        raise ValueError(
            f"export must name one file, got {[options.out, options.onnx]}; for instance "
            "--onnx policy.onnx"
        )
    out = Path(options.onnx or options.out)
    if options.onnx is None and out.suffix not in (".onnx", ".pt2"):
        raise ValueError(f"file must end in .onnx or .pt2, got {options.out!r}")
    policy = load_policy(find_checkpoint(options.run))
    if policy.state_size:
        raise ValueError(
            f"policy must have no memory to be exported, got recurrent={policy.state_size}"
        )
    inputs, outputs = _write(policy, out, onnx=options.onnx is not None or out.suffix == ".onnx")
    if options.json:
        print(json.dumps({"file": str(out), "inputs": inputs, "outputs": outputs}))
    else:
        print(f"{out}\n  inputs   {', '.join(inputs)}\n  outputs  {', '.join(outputs)}")
    return 0


def _write(policy: EntityPolicy, out: Path, *, onnx: bool) -> tuple[list[str], list[str]]:
    """Write the file; return the names of its inputs and outputs."""
    import torch

    from entity_encoder.export import (
        PolicyFunction,
        example_observation,
        export_onnx,
        export_program,
    )

    critic = policy.critic if policy.separate_critic else None
    function = PolicyFunction(policy.encoder, policy.action_head, policy.value_head, critic)
    if onnx:
        return export_onnx(function, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(export_program(function), out)
    example = example_observation(function, batch=2)
    with torch.no_grad():
        return list(example), list(function(example))
