"""Claims about compiled encoders. Graphs are traced and run uncompiled: that is what can differ."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from entity_encoder import EgoFrame, EntityGroup, EntitySchema, GlobalFeature
from entity_encoder.compilation import compile_encoder, fitting_width
from tests.entity_encoder.strategies import (
    SELF,
    assert_close,
    assert_same_gradients,
    fill,
    gradients,
    make_encoder,
    poisoned,
    taken,
)

UNITS = EntityGroup("unit", 64, ("x", "y", "hp"), "unit_mask", positions=("x", "y"))
ME = EntityGroup(SELF, 1, ("x", "y"), "self_mask", positions=("x", "y"))
ORES = EntityGroup("ore", 3, ("amount", "there"), presence="there")
SCHEMA = EntitySchema((UNITS, ME, ORES), (GlobalFeature("clock", 2),), EgoFrame(SELF))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _observation(slots: int, batch: int = 5, seed: int = 0) -> dict[str, Any]:
    return fill(SCHEMA.with_slots({"unit": slots}), batch, seed=seed, density=0.5)


def test_widths_are_few_and_the_capacity_is_one_of_them() -> None:
    assert [fitting_width(n, 64) for n in (0, 1, 8, 9, 33, 64, 65, 129)] == [
        8, 8, 8, 16, 64, 64, 128, 192,
    ]  # fmt: skip
    assert [fitting_width(n, 13) for n in (0, 8, 9, 13, 14)] == [8, 8, 13, 13, 16]
    assert fitting_width(1, 1) == 1
    assert fitting_width(0, 0) == 0
    assert fitting_width(100, 3, widths=(2, 30)) == 120


def test_att_32_fourteen_sizes_cost_at_most_four_graphs() -> None:
    counter = CompileCounter()
    schema = EntitySchema((EntityGroup("a", 64, ("x",), "m"),))
    encoder = make_encoder(schema, n_layers=1)
    compiled = compile_encoder(encoder, backend=counter)
    sizes = (1, 2, 3, 5, 8, 11, 13, 17, 20, 30, 33, 47, 59, 64)
    with torch.no_grad():
        for i, slots in enumerate(sizes):
            # The batch is free as well.
            observation = fill(schema.with_slots({"a": slots}), 2 + i, seed=i, density=0.5)
            got, expected = compiled(observation), encoder(observation)
            assert torch.equal(got.mask, expected.mask)
            assert_close(got.pooled, expected.pooled, 1e-5)
            assert_close(got.entities, expected.entities, 1e-5)
    assert counter.frame_count <= 4


OPTIONS = [
    {"pooling": "class", "position_encoding": "rotary", "count_feature": True},
    pytest.param({"pooling": "ego", "position_encoding": "bias"}, marks=pytest.mark.slow),
    pytest.param({"pooling": "attention", "core": "latent"}, marks=pytest.mark.slow),
    pytest.param({"pooling": "max", "core": "ego", "norm": "post"}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_compiling_changes_no_value_and_no_gradient(options: dict[str, Any]) -> None:
    encoder = make_encoder(SCHEMA, n_layers=1, n_points=3, **options)
    compiled = compile_encoder(encoder, backend="eager")
    observation = poisoned(SCHEMA, _observation(11), np.nan)
    compiled.update_statistics(observation)
    got, expected = compiled(observation), encoder(observation)
    assert_close(got.pooled, expected.pooled, 1e-5)
    assert_close(got.entities, expected.entities, 1e-5)
    if "core" not in options:
        assert compiled(observation, return_attention=True).attention is not None
    assert compiled(taken(observation, slice(0, 0))).pooled.shape == (0, encoder.output_dim)
    for name in ("unit", SELF, "ore"):
        assert got.group(name)[0].shape == expected.group(name)[0].shape

    def weigh(encoding: Any) -> torch.Tensor:
        return encoding.pooled.sin().sum() + encoding.entities.cos().sum()

    slopes = gradients(encoder, observation, weigh)
    encoder.zero_grad()
    weigh(compiled(observation)).backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in encoder.named_parameters()
    }
    assert_same_gradients(found, slopes, 1e-4)


@pytest.mark.slow
def test_any_leading_dimensions_give_the_same() -> None:
    encoder = make_encoder(SCHEMA)
    compiled = compile_encoder(encoder, backend="eager")
    observation = _observation(9)
    alone = compiled(taken(observation, 2))
    assert alone.pooled.shape == (encoder.output_dim,)
    assert_close(alone.entities, encoder(taken(observation, 2)).entities, 1e-5)


def test_it_answers_like_the_encoder() -> None:
    encoder = make_encoder(SCHEMA)
    compiled = compile_encoder(encoder, backend="eager")
    assert compiled.schema is encoder.schema
    assert (compiled.d_model, compiled.output_dim) == (encoder.d_model, encoder.output_dim)
    assert [p.data_ptr() for p in compiled.parameters()] == [
        p.data_ptr() for p in encoder.parameters()
    ]


def test_bad_observations_are_named_before_compiled_code_runs() -> None:
    compiled = compile_encoder(make_encoder(SCHEMA), backend="eager")
    observation = _observation(9)
    observation["unit_mask"][:] = True
    observation["unit"][3, 7, 2] = np.nan
    with pytest.raises(ValueError, match="got nan in environment 3, key 'unit', slot 7"):
        compiled(observation)
    crew = EntitySchema((EntityGroup(SELF, 3, ("x", "y"), "m", positions=("x", "y")),))
    for schema, ego in ((crew, SELF), (EntitySchema(crew.groups, (), EgoFrame(SELF)), None)):
        compiled = compile_encoder(make_encoder(schema, pooling="ego", ego=ego), backend="eager")
        with pytest.raises(ValueError, match="'self' must have at most one present entity, got 3"):
            compiled({SELF: np.zeros((2, 3, 2)), "m": np.ones((2, 3))})


def test_what_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention must be 'auto' or 'dense' .* got 'groups'"):
        compile_encoder(make_encoder(SCHEMA, attention="groups"))
    with pytest.raises(ValueError, match=r"widths must be numbers of at least 2, got \(1, 8\)"):
        compile_encoder(make_encoder(SCHEMA), widths=(1, 8))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing inductor warns of its own
def test_the_default_compiler_gives_the_same_function() -> None:
    encoder = make_encoder(SCHEMA, position_encoding="rotary")
    compiled = compile_encoder(encoder)
    for slots in (5, 40):
        observation = _observation(slots)
        assert_close(compiled(observation).pooled, encoder(observation).pooled, 1e-5)
