"""Write a policy as one file: torch.export's format, or ONNX for runtimes without torch.

The whole policy is in the file, normalisation included. Its inputs are the observation's keys, the
batch size and the number of slots of every group stay free.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from entity_encoder.distributions import Composite, DiagonalGaussian
from entity_encoder.encoder import EntityEncoder
from entity_encoder.heads import ActionHead
from entity_encoder.spaces import space_to_dict

__all__ = ["PolicyFunction", "example_observation", "export_onnx", "export_program"]


class PolicyFunction(nn.Module):
    """An observation in, named tensors out: what is exported.

    Args:
        encoder: Encoder of the observation.
        action_head: Result of `make_action_head`.
        value_head: Module from the pooled vector (..., P) to (..., 1), or None for no value.
        critic: Encoder that serves the value; None: the same. Only the value sees critic-only
            groups and features.
    """

    def __init__(
        self,
        encoder: EntityEncoder,
        action_head: ActionHead,
        value_head: nn.Module | None = None,
        critic: EntityEncoder | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.action_head = action_head
        self.value_head = value_head
        self.critic = critic

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the policy does and thinks of a batch.

        Args:
            observation: (B, ...) tensors by key; masks bool or numbers, 1 = present or legal.

        Returns:
            `action`, the deterministic one as the environment wants it; `probs`, the
            probabilities of discrete choices, or `mean` and `std` of raw real-valued actions;
            `value` (B,) if there is a value head. For Dict and Tuple actions every part has its
            own, `action_<key>` and so on. A row without a legal choice has action 0 and
            probabilities 0.
        """
        encoding = self.encoder(observation)
        outputs = _describe(self.action_head(encoding, observation, validate=False))
        if self.value_head is not None:
            pooled = encoding.pooled
            if self.critic is not None or self.encoder.schema.has_critic_only:
                encoder = self.encoder if self.critic is None else self.critic
                pooled = encoder(observation, critic=True).pooled
            outputs["value"] = self.value_head(pooled).squeeze(-1)
        return outputs


def _describe(distribution: Any, suffix: str = "") -> dict[str, Tensor]:
    if isinstance(distribution, Composite):
        outputs: dict[str, Tensor] = {}
        for key, part in distribution.parts.items():
            outputs.update(_describe(part, f"{suffix}_{key}"))
        return outputs
    action = distribution.to_env(distribution.mode())
    if isinstance(distribution, DiagonalGaussian):
        moments = {f"mean{suffix}": distribution.mean, f"std{suffix}": distribution.std}
        return {f"action{suffix}": action, **moments}
    return {f"action{suffix}": action, f"probs{suffix}": distribution.probs}


def example_observation(
    function: PolicyFunction, *, batch: int, slots: Mapping[str, int] | None = None
) -> dict[str, Tensor]:
    """Make an observation with one entity of each group, and every action legal.

    Args:
        function: The policy.
        batch: Number of rows B.
        slots: Number of slots per group; default the schema's.
    """
    schema = function.encoder.schema
    slots = {group.name: group.slots for group in schema.groups} if slots is None else slots
    found: dict[str, Tensor] = {}
    for group in schema.groups:
        table = torch.zeros(batch, slots[group.name], len(group.features))
        if group.mask_key is None:
            assert group.presence is not None
            table[:, :1, group.features.index(group.presence)] = 1.0
        else:
            found[group.mask_key] = torch.zeros(table.shape[:2], dtype=torch.bool)
            found[group.mask_key][:, :1] = True  # one: no frame can have two egos
        found[group.name] = table
    for item in schema.globals:
        found[item.name] = torch.zeros(batch, item.size)
    for key, shape in function.action_head.mask_shapes(slots).items():
        if key in schema.action_masks:
            found[key] = torch.ones(batch, *shape, dtype=torch.bool)
    return found


def _dynamic_shapes(function: PolicyFunction) -> dict[str, dict[int, Any]]:
    """Say which axes of each key are free: the batch, and the slots of every group."""
    schema = function.encoder.schema
    rows = Dim("batch")
    slots = {group.name: Dim(f"{group.name}_slots") for group in schema.groups}
    shapes: dict[str, dict[int, Any]] = {}
    for group in schema.groups:
        for key in (group.name, group.mask_key):
            if key is not None:
                shapes[key] = {0: rows, 1: slots[group.name]}
    for item in schema.globals:
        shapes[item.name] = {0: rows}
    for key, shape in function.action_head.mask_shapes(slots).items():
        free = {i: size for i, size in enumerate(shape, start=1) if not isinstance(size, int)}
        shapes[key] = {0: rows, **free}
    return shapes


def export_program(function: PolicyFunction) -> ExportedProgram:
    """Export with `torch.export`; save with `torch.export.save(program, "policy.pt2")`.

    Args:
        function: The policy; must be on the CPU in fp32, and is put into eval mode.

    Returns:
        A program whose `.module()` takes the observation dict of tensors, features in fp32 and
        masks in bool.
    """
    # Sizes of 1 would be taken for constants, and equal ones for the same size.
    slots = {group.name: 3 + i for i, group in enumerate(function.encoder.schema.groups)}
    example = example_observation(function, batch=2, slots=slots)
    dynamic = _dynamic_shapes(function)
    shapes = {"observation": {key: dynamic[key] for key in example}}
    with torch.no_grad():
        return torch.export.export(function.eval(), (example,), dynamic_shapes=shapes)


def export_onnx(function: PolicyFunction, path: str | Path) -> tuple[list[str], list[str]]:
    """Write an ONNX file that runs without torch and without this package.

    Inputs are fp32, masks bool. The file's metadata hold the schema (`entity_encoder.schema`) and
    the action space (`entity_encoder.action_space`) as JSON.

    Args:
        function: The policy; must be on the CPU in fp32, and is put into eval mode.
        path: File to write.

    Returns:
        Names of the inputs, the observation's keys, and of the outputs.

    Raises:
        ImportError: When the packages for ONNX are missing, with the command that installs them.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'an ONNX file needs more packages: pip install "entity-encoder[export]"'
        ) from error
    example = example_observation(function, batch=2)
    outputs = list(function(example))
    with _quiet():
        program = torch.onnx.export(
            export_program(function),
            input_names=list(example),
            output_names=outputs,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    _name_axes(program.model, _dynamic_shapes(function))
    schema, space = function.encoder.schema.to_dict(), space_to_dict(function.action_head.space)
    program.model.metadata_props["entity_encoder.schema"] = json.dumps(schema)
    program.model.metadata_props["entity_encoder.action_space"] = json.dumps(space)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    program.save(path, external_data=False)
    return list(example), outputs


def _name_axes(model: Any, dynamic: Mapping[str, Mapping[int, Any]]) -> None:
    """Call the free axes of an ONNX model what they are, instead of s0, s1, ..."""
    names: dict[str, str] = {}
    for value in model.graph.inputs:
        for axis, dim in dynamic[value.name].items():
            symbol = str(value.shape[axis].value)
            if symbol.isidentifier():  # not a sum such as "s1 + 2"
                names[symbol] = dim.__name__
    outputs = [value for node in model.graph for value in node.outputs]
    for value in {id(v): v for v in [*model.graph.inputs, *outputs]}.values():
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and dim.value is not None:
                value.shape[axis] = re.sub(r"\w+", lambda m: names.get(m[0], m[0]), dim.value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what the exporter says about its own code and about torchvision."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
