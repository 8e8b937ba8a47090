"""Claims about exported policies. Made once per module, since tracing takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.encoder import EntityEncoder
from entity_encoder.export import (
    PolicyFunction,
    example_observation,
    export_onnx,
    export_program,
)
from entity_encoder.heads import PooledHead, make_action_head
from entity_encoder.schema import EgoFrame, EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity, space_from_dict

pytestmark = pytest.mark.timeout(900)  # tracing is slow where many processes share the cores

ALLIES, ENEMIES = 3, 5

OBSERVATION = spaces.Dict(
    ally=spaces.Box(-9, 9, (ALLIES, 4)),
    ally_mask=spaces.MultiBinary(ALLIES),
    enemy=spaces.Box(-9, 9, (ENEMIES, 3)),
    enemy_mask=spaces.MultiBinary(ENEMIES),
    step=spaces.Box(0, 1, (1,)),
    action_mask_act=spaces.MultiBinary((ALLIES, 2 + ENEMIES)),
    action_mask_kind=spaces.MultiBinary(5),
)
ACTION = spaces.Dict(
    act=PerEntity("ally", ALLIES, 2, target="enemy", target_slots=ENEMIES),
    kind=spaces.MultiDiscrete([2, 3]),
    pick=SelectEntity("enemy", ENEMIES),
    turn=spaces.Box(-1, 3, (2,)),
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "export_onnx.py"

# Batch, allies, enemies: none of them seen at export.
SHAPES = [(3, 2, 9), (1, 1, 1), (7, 8, 6), (2, 0, 3), (0, 2, 2)]


def make_function() -> PolicyFunction:
    """A policy with clear preferences and statistics of features that are far from 0 and 1."""
    torch.manual_seed(3)
    encoder = EntityEncoder(OBSERVATION, d_model=16, n_heads=2, n_layers=1)
    head = make_action_head(ACTION, encoder)
    function = PolicyFunction(encoder, head, PooledHead(encoder.output_dim, 1, gain=1.0))
    prefer_something(function)
    encoder.update_statistics(random_observation(function, 40, 4, 6))
    return function


@torch.no_grad()
def prefer_something(function: PolicyFunction) -> None:
    """Tell actions apart by more than rounding, as a fresh policy does not."""
    for p in function.action_head.parameters():
        p.normal_(std=0.5)


def random_observation(
    function: PolicyFunction, batch: int, allies: int, enemies: int, seed: int = 0
) -> dict[str, Tensor]:
    """Features around 5, half of the slots taken, half of the actions legal."""
    g = torch.Generator().manual_seed(seed)
    found = example_observation(function, batch=batch, slots={"ally": allies, "enemy": enemies})
    for key, value in found.items():
        if value.dtype == torch.bool:
            found[key] = torch.rand(value.shape, generator=g) < 0.5
        else:
            found[key] = 5 + 3 * torch.randn(value.shape, generator=g)
    if batch > 2:
        found["ally_mask"][0] = False  # everybody is gone
        found["enemy_mask"][0] = False
        found["enemy_mask"][1] = False
    return found


def compare(
    outputs: Mapping[str, Any], expected: Mapping[str, Tensor], tolerance: float = 1e-4
) -> None:
    assert list(outputs) == list(expected)
    for name, value in expected.items():
        got = np.asarray(outputs[name])
        assert got.shape == value.shape, name
        assert np.isfinite(got).all(), name
        np.testing.assert_allclose(got, value.numpy(), atol=tolerance, rtol=tolerance)


@pytest.fixture(scope="module")
def function() -> PolicyFunction:
    return make_function()


@pytest.fixture(scope="module")
def onnx_file(function: PolicyFunction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "new" / "policy.onnx"
    inputs, outputs = export_onnx(function, path)
    assert set(inputs) == set(OBSERVATION)
    assert outputs == [
        *("action_act", "probs_act", "action_kind", "probs_kind", "action_pick", "probs_pick"),
        *("action_turn", "mean_turn", "std_turn", "value"),
    ]
    return path


def test_att_33_the_file_agrees_with_the_policy_on_unseen_shapes(
    function: PolicyFunction, onnx_file: Path
) -> None:
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    for batch, allies, enemies in SHAPES:
        observation = random_observation(function, batch, allies, enemies, seed=batch)
        with torch.no_grad():
            expected = function(observation)  # packed attention, another path than the file's
        arrays = {key: value.numpy() for key, value in observation.items()}
        compare(dict(zip(names, session.run(names, arrays), strict=True)), expected)


def test_the_file_ignores_what_is_in_absent_slots(
    function: PolicyFunction, onnx_file: Path
) -> None:
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    observation = random_observation(function, 5, 4, 6)
    poisoned = dict(observation)
    for group in ("ally", "enemy"):
        absent = ~observation[f"{group}_mask"][..., None]
        poisoned[group] = observation[group].masked_fill(absent, np.nan)
    for a, b in zip(
        *(session.run(None, {k: v.numpy() for k, v in o.items()}) for o in (observation, poisoned)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_the_file_names_its_axes_and_describes_itself(
    function: PolicyFunction, onnx_file: Path
) -> None:
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    shapes = {item.name: item.shape for item in session.get_inputs()}
    assert shapes["ally"] == ["batch", "ally_slots", 4]
    assert shapes["enemy_mask"] == ["batch", "enemy_slots"]
    assert shapes["action_mask_act"] == ["batch", "ally_slots", "enemy_slots + 2"]
    outputs = {item.name: item.shape for item in session.get_outputs()}
    assert outputs["action_act"] == ["batch", "ally_slots"]
    assert outputs["value"] == ["batch"]
    metadata = session.get_modelmeta().custom_metadata_map
    schema = EntitySchema.from_dict(json.loads(metadata["entity_encoder.schema"]))
    assert schema == function.encoder.schema
    assert space_from_dict(json.loads(metadata["entity_encoder.action_space"])) == ACTION


def test_the_example_runs_the_file_without_torch(onnx_file: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['torch'] = None; sys.modules['entity_encoder'] = None;"
        "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    options = [str(EXAMPLE), str(onnx_file), "--envs", "5", "--slots", "7"]
    command = [sys.executable, "-c", code, *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "action_act" in result.stdout
    assert "(5, 7)" in result.stdout


def test_actions_of_the_function_are_the_policys_own(function: PolicyFunction) -> None:
    observation = random_observation(function, 6, ALLIES, ENEMIES)
    observation["ally_mask"][:] = True
    observation["enemy_mask"][:] = True
    observation["action_mask_act"][..., 0] = True
    observation["action_mask_kind"][:] = True
    with torch.no_grad():
        outputs = function(observation)
        encoding = function.encoder(observation)
        d = function.action_head(encoding, observation)
    for key, action in d.to_env(d.mode()).items():
        assert torch.equal(outputs[f"action_{key}"], action)
    assert torch.equal(outputs["probs_pick"], d.probs["pick"])
    assert function.value_head is not None
    assert torch.equal(outputs["value"], function.value_head(encoding.pooled).squeeze(-1))


FRAMED = EntitySchema.from_space(
    spaces.Dict({key: part for key, part in OBSERVATION.items() if "action" not in key}),
    positions={"ally": ("f0", "f1"), "enemy": ("f0", "f1")},
    categories={"enemy": {"f2": 4}},
)


def test_a_saved_program_agrees_on_unseen_shapes(tmp_path: Path) -> None:
    torch.manual_seed(1)
    encoder = EntityEncoder(
        FRAMED, d_model=16, n_heads=2, n_layers=1, pooling="attention", position_encoding="rotary"
    )
    function = PolicyFunction(encoder, make_action_head(spaces.Discrete(4), encoder))
    prefer_something(function)
    torch.export.save(export_program(function), tmp_path / "policy.pt2")
    module = torch.export.load(tmp_path / "policy.pt2").module()
    for batch, allies, enemies in SHAPES:
        observation = random_observation(function, batch, allies, enemies, seed=batch)
        observation["enemy"][..., 2] = torch.arange(enemies) % 4
        with torch.no_grad():
            compare(module(observation), function(observation))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"norm": "post"},
        *({"pooling": p} for p in ("mean", "max", "sum", "class", "attention", "ego")),
        *({"core": c} for c in ("induced", "latent", "ego", "pool")),
        {"position_encoding": "bias"},
        {"position_encoding": "rotary", "count_feature": True},
        {"normalise": False, "activation": "gelu"},
    ],
    ids=str,
)
def test_every_option_can_be_exported(options: dict[str, Any], tmp_path: Path) -> None:
    schema = EntitySchema(FRAMED.groups, FRAMED.globals, EgoFrame("ally"))
    torch.manual_seed(1)
    encoder = EntityEncoder(schema, d_model=16, n_heads=2, n_layers=2, **options)
    function = PolicyFunction(encoder, make_action_head(SelectEntity("enemy", ENEMIES), encoder))
    prefer_something(function)
    export_onnx(function, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "policy.onnx", providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_outputs()]
    for batch, allies, enemies in SHAPES:
        if not enemies:
            continue  # a pointer needs slots to take the largest score of
        observation = random_observation(function, batch, allies, enemies, seed=batch)
        observation["ally_mask"][:, 1:] = False  # a frame has one ego
        observation["enemy"][..., 2] = torch.arange(enemies) % 4
        with torch.no_grad():
            expected = function(observation)
        arrays = {key: value.numpy() for key, value in observation.items()}
        compare(dict(zip(names, session.run(names, arrays), strict=True)), expected)


def test_examples_hold_one_entity_of_each_group() -> None:
    space = spaces.Dict(car=spaces.Box(-1, 1, (3, 5)), other=spaces.Box(-1, 1, (2,)))
    schema = EntitySchema.from_space(space, presence={"car": "f0"})
    function = PolicyFunction(
        encoder := EntityEncoder(schema, d_model=8, n_heads=2, n_layers=1),
        make_action_head(spaces.Discrete(4), encoder),
    )
    example = example_observation(function, batch=2)
    assert {key: tuple(value.shape) for key, value in example.items()} == {
        "car": (2, 3, 5),
        "other": (2, 2),
    }
    assert function.encoder(example).mask.sum(-1).tolist() == [1, 1]


def test_the_critic_may_see_more_and_have_its_own_encoder() -> None:
    schema = EntitySchema.from_space(FRAMED.space(), critic_only=["enemy"])
    torch.manual_seed(1)
    encoder, critic = (EntityEncoder(schema, d_model=8, n_heads=2, n_layers=1) for _ in range(2))
    head = make_action_head(spaces.Discrete(4), encoder)
    value = PooledHead(encoder.output_dim, 1, gain=1.0)
    shared = PolicyFunction(encoder, head, value)
    separate = PolicyFunction(encoder, head, value, critic)
    observation = random_observation(shared, 3, ALLIES, ENEMIES)
    moved = {**observation, "enemy": observation["enemy"] + 1}
    for function, reader in ((shared, encoder), (separate, critic)):
        a, b = function(observation), function(moved)
        expected = value(reader(observation, critic=True).pooled).squeeze(-1)
        assert torch.equal(a["value"], expected)
        assert not torch.equal(a["value"], b["value"])
        assert torch.equal(a["probs"], b["probs"])


def test_missing_packages_are_named(
    function: PolicyFunction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r'pip install "entity-encoder\[export\]"'):
        export_onnx(function, tmp_path / "policy.onnx")
