"""Run an exported policy with NumPy and onnxruntime alone: no torch, none of our packages.

    entity-encoder export runs/minefield/checkpoint --onnx policy.onnx
    python examples/export_onnx.py policy.onnx
    python examples/export_onnx.py policy.onnx --envs 5 --slots 40   # more entities than trained on

The observation is made up from the schema inside the file; in a real program it comes from the
environment, an array per key with the batch in front.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

import numpy as np
import onnxruntime

NUMPY_TYPES = {"tensor(float)": np.float32, "tensor(bool)": np.bool_}


def load(path: str) -> tuple[onnxruntime.InferenceSession, dict]:
    """Open an exported policy and read its schema."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    return session, json.loads(metadata["entity_encoder.schema"])


def act(
    session: onnxruntime.InferenceSession, observation: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the policy's outputs for a batch: actions, probabilities, the value."""
    inputs: dict[str, np.ndarray] = {
        item.name: np.asarray(observation[item.name]).astype(NUMPY_TYPES[item.type])
        for item in session.get_inputs()
    }
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def made_up_observation(
    session: onnxruntime.InferenceSession,
    schema: dict,
    rng: np.random.Generator,
    envs: int,
    slots: int | None,
) -> dict[str, np.ndarray]:
    """Draw features, and about half of the entities present; every action is legal."""
    sizes = {"batch": envs}
    for group in schema["groups"]:
        sizes[f"{group['name']}_slots"] = group["slots"] if slots is None else slots
    masks = [group["mask_key"] for group in schema["groups"]]
    observation = {}
    for item in session.get_inputs():
        shape = [eval_size(size, sizes) for size in item.shape]
        if item.name in schema["action_masks"]:
            observation[item.name] = np.ones(shape, np.bool_)
        elif item.name in masks:
            observation[item.name] = rng.random(shape) < 0.5
            observation[item.name][:, :1] = True  # pointing needs somebody to point at
        else:
            observation[item.name] = rng.normal(size=shape).astype(np.float32)
    return observation


def eval_size(size: int | str, sizes: Mapping[str, int]) -> int:
    """Work out an axis: a number, a name, or a sum of both such as "enemy_slots + 2"."""
    parts = str(size).split(" + ")
    return sum(int(part) if part.isdigit() else sizes[part] for part in parts)


def main() -> None:
    """Print what the policy does in made-up states."""
    parser = argparse.ArgumentParser(description="Run an exported policy without torch.")
    parser.add_argument("policy", help="file written by `entity-encoder export ... --onnx`")
    parser.add_argument("--envs", type=int, default=3, help="batch size")
    parser.add_argument("--slots", type=int, help="slots of every group; default as trained")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    session, schema = load(args.policy)
    rng = np.random.default_rng(args.seed)
    observation = made_up_observation(session, schema, rng, args.envs, args.slots)
    for name, array in observation.items():
        print(f"in   {name:24} {array.dtype!s:8} {array.shape}")
    for name, array in act(session, observation).items():
        first = np.round(array[0].tolist(), 3).tolist()
        print(f"out  {name:24} {array.dtype!s:8} {array.shape}  first: {first}")


if __name__ == "__main__":
    main()
