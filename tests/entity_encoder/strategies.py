"""Generated schemas, observations and encoder options for the property tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from entity_encoder import EgoFrame, EntityEncoder, EntityGroup, EntitySchema, GlobalFeature
from entity_encoder.encoding import EntityEncoding

Observation = dict[str, Any]

CPU_STRATEGIES = ("groups", "fast", "padded", "dense")
STRATEGIES = (*CPU_STRATEGIES, "varlen") if torch.cuda.is_available() else CPU_STRATEGIES
POOLINGS = ("mean", "max", "sum", "attention", "class", "ego")
CORES = ("attention", "induced", "latent", "ego", "pool")
POSITIONS = ("none", "rotary", "bias")
MASK_DTYPES = ("bool", "int8", "uint8", "int64", "float32", "float64")
PADDINGS = (0.0, 1e30, -1e30, np.inf, -np.inf, np.nan)
WIDTHS = ((12, 2), (14, 2), (24, 3), (32, 4))  # (d_model, n_heads), head widths 6, 7, 8, 8

UNIT, ORE, BEACON, SELF = "unit", "ore", "beacon", "self"


@dataclass(frozen=True, repr=False)
class Scene:
    """A batch of observations, and what it means.

    Attributes:
        schema: Names and columns.
        observation: Arrays with one leading dimension B; absent slots hold junk.
        options: Keyword arguments of the encoder.
        seed: Seed of the encoder's weights.
    """

    schema: EntitySchema
    observation: Observation
    options: dict[str, Any]
    seed: int

    def __repr__(self) -> str:
        """Leave out the numbers: `fill` makes them again."""
        shapes = {key: array.shape for key, array in self.observation.items()}
        return f"Scene({self.schema}, {shapes}, {self.options}, seed={self.seed})"

    @property
    def batch(self) -> int:
        """B."""
        return int(self.observation[self.schema.groups[0].name].shape[0])

    def encoder(self, **changes: Any) -> EntityEncoder:
        """Build the encoder; equal seeds give equal weights, whatever the strategy."""
        return make_encoder(self.schema, seed=self.seed, **{**self.options, **changes})


def make_encoder(schema: Any, *, seed: int = 0, **options: Any) -> EntityEncoder:
    """Build an encoder whose every parameter matters: no zero bias, no unit norm."""
    torch.manual_seed(seed)
    encoder = EntityEncoder(schema, **{"d_model": 12, "n_heads": 2, "n_layers": 2, **options})
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return encoder


def masks_of(schema: EntitySchema, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Which slots hold an entity, bool (..., slots) per group."""
    found = {}
    for group in schema.groups:
        if group.mask_key is not None:
            mask = np.asarray(observation[group.mask_key]).astype(bool)
            found[group.name] = mask.reshape(np.asarray(observation[group.name]).shape[:-1])
        else:
            assert group.presence is not None
            column = group.features.index(group.presence)
            found[group.name] = np.asarray(observation[group.name])[..., column] > 0.5
    return found


def poisoned(schema: EntitySchema, observation: Mapping[str, Any], value: float) -> Observation:
    """Fill absent slots with `value`, the presence column excepted."""
    out = {key: np.array(array) for key, array in observation.items()}
    masks = masks_of(schema, observation)
    for group in schema.groups:
        keep = np.zeros(len(group.features), bool)
        if group.mask_key is None and group.presence is not None:
            keep[group.features.index(group.presence)] = True
        write = ~masks[group.name][..., None] & ~keep
        out[group.name] = np.where(write, np.float32(value), out[group.name])
    return out


def rearranged(
    schema: EntitySchema, observation: Mapping[str, Any], order: Mapping[str, np.ndarray]
) -> Observation:
    """Put slot `order[group][i]` in place i, (slots_g,) or (B, slots_g) per group."""
    out = dict(observation)
    for group in schema.groups:
        for key in (group.name, group.mask_key):
            if key is not None:
                array = np.asarray(observation[key])
                index = np.broadcast_to(order[group.name], array.shape[:2])
                index = index.reshape(*index.shape, *[1] * (array.ndim - 2))
                out[key] = np.take_along_axis(array, index, axis=1)
    return out


def resized(
    schema: EntitySchema, observation: Mapping[str, Any], slots: Mapping[str, int], junk: float
) -> Observation:
    """Cut or append slots at the end of each group; appended ones are absent and hold `junk`."""
    out = dict(observation)
    for group in schema.groups:
        table = np.asarray(observation[group.name])
        extra = slots[group.name] - table.shape[1]
        if extra <= 0:
            table = table[:, : slots[group.name]]
        else:
            more = np.full((table.shape[0], extra, table.shape[2]), junk, table.dtype)
            if group.mask_key is None and group.presence is not None:
                more[..., group.features.index(group.presence)] = 0
            table = np.concatenate([table, more], axis=1)
        out[group.name] = table
        if group.mask_key is not None:
            mask = np.asarray(observation[group.mask_key])
            if extra <= 0:
                out[group.mask_key] = mask[:, : slots[group.name]]
            else:
                blank = np.zeros((mask.shape[0], extra, *mask.shape[2:]), mask.dtype)
                out[group.mask_key] = np.concatenate([mask, blank], axis=1)
    return out


def compacted(schema: EntitySchema, observation: Mapping[str, Any]) -> Observation:
    """Move present entities to the front, keeping their order, and cut what nobody uses."""
    masks = masks_of(schema, observation)
    order = {name: np.argsort(~mask, axis=1, kind="stable") for name, mask in masks.items()}
    used = {name: int(mask.sum(1).max(initial=0)) for name, mask in masks.items()}
    return resized(schema, rearranged(schema, observation, order), used, 0.0)


def taken(observation: Mapping[str, Any], index: Any) -> Observation:
    """Take members of the batch from every key."""
    return {key: value[index] for key, value in observation.items()}


def relead(observation: Mapping[str, Any], lead: tuple[int, ...]) -> Observation:
    """Replace the batch dimension by `lead`."""
    return {key: value.reshape(*lead, *value.shape[1:]) for key, value in observation.items()}


def gradients(
    encoder: EntityEncoder,
    observation: Mapping[str, Any],
    weigh: Callable[[EntityEncoding], Tensor],
) -> dict[str, Tensor]:
    """Gradient of `weigh(encoding)` for every parameter, zeros where it does not depend on one."""
    encoder.zero_grad(set_to_none=True)
    weigh(encoder(observation)).backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in encoder.named_parameters()
    }


def assert_close(got: Tensor, expected: Tensor, tolerance: float, what: str = "") -> None:
    """Compare up to `tolerance`, relative to the largest expected value where that exceeds 1."""
    assert got.shape == expected.shape, f"{what}: {got.shape} != {expected.shape}"
    if not expected.numel():
        return
    got, expected = got.detach().cpu().double(), expected.detach().cpu().double()
    scale = max(1.0, float(expected.abs().max()))
    worst = float((got - expected).abs().max())
    assert worst <= tolerance * scale, f"{what}: off by {worst:.3g} at scale {scale:.3g}"


def assert_same_gradients(
    got: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float
) -> None:
    """Compare gradients parameter by parameter."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.isfinite(got[name]).all(), name
        assert_close(got[name], value, tolerance, name)


def every_option() -> Iterator[dict[str, Any]]:
    """One choice of options per pooling, core, position encoding and norm."""
    for pooling in POOLINGS:
        yield {"pooling": pooling, "n_queries": 3 if pooling == "attention" else 1}
    for core in CORES[1:]:
        yield {"core": core, "n_points": 3}
    for encoding in POSITIONS[1:]:
        yield {"position_encoding": encoding, "position_scale": 2.0}
    yield {"norm": "post", "count_feature": True, "activation": "gelu", "n_layers": 1}


@st.composite
def schemas(draw: st.DrawFn, *, max_slots: int = 7) -> EntitySchema:
    """One to four groups: units with positions, ores, featureless beacons, an ego entity."""
    kinds = draw(st.sets(st.sampled_from([UNIT, ORE, BEACON, SELF]), min_size=1))
    slots = st.integers(0, max_slots)
    groups = []
    if SELF in kinds:
        groups.append(
            EntityGroup(SELF, 1, ("x", "y", "c", "s"), "self_mask", None, ("x", "y"), ("c", "s"))
        )
    if UNIT in kinds:
        groups.append(
            EntityGroup(
                UNIT,
                draw(slots),
                ("hp", "x", "y", "heading", "job"),
                "unit_mask",
                positions=("x", "y"),
                angles=("heading",),
                categories=(("job", 3),),
            )
        )
    if ORE in kinds:
        presence = draw(st.booleans())
        groups.append(
            EntityGroup(
                ORE,
                draw(slots),
                ("amount", "there") if presence else ("amount", "purity", "depth"),
                None if presence else "ore_mask",
                "there" if presence else None,
            )
        )
    if BEACON in kinds:
        groups.append(EntityGroup(BEACON, draw(slots), (), "beacon_mask"))
    globals_ = tuple(GlobalFeature(f"g{i}", i + 1) for i in range(draw(st.integers(0, 2))))
    frame = None
    if SELF in kinds:
        heading = draw(st.sampled_from([None, (), ("c", "s")]))
        frame = None if heading is None else EgoFrame(SELF, heading=heading)
    order = draw(st.permutations(groups))
    return EntitySchema(tuple(order), globals_, frame)


def fill(schema: EntitySchema, batch: int, *, seed: int, density: float) -> Observation:
    """Draw an observation: about `density` of the slots hold an entity, junk lies in the rest."""
    rng = np.random.default_rng(seed)
    out: Observation = {}
    for group in schema.groups:
        present = rng.random((batch, group.slots)) < density
        if group.name == SELF:
            present &= np.cumsum(present, axis=1) <= 1
        table = rng.normal(size=(batch, group.slots, len(group.features))).astype(np.float32)
        for name, count in group.categories:
            table[..., group.features.index(name)] = rng.integers(0, count, present.shape)
        if group.presence is not None:
            table[..., group.features.index(group.presence)] = present
        if group.mask_key is not None:
            out[group.mask_key] = present
        out[group.name] = table
    for item in schema.globals:
        out[item.name] = rng.normal(size=(batch, item.size)).astype(np.float32)
    return poisoned(schema, out, 7.5)


@st.composite
def encoder_options(draw: st.DrawFn, schema: EntitySchema) -> dict[str, Any]:
    """Options that fit the schema."""
    has_ego = any(group.name == SELF for group in schema.groups)
    has_positions = any(group.positions for group in schema.groups)
    encoding = draw(st.sampled_from(POSITIONS)) if has_positions else "none"
    cores = [core for core in CORES if has_ego or core != "ego"]
    poolings = [pooling for pooling in POOLINGS if has_ego or pooling != "ego"]
    d_model, n_heads = draw(st.sampled_from(WIDTHS))
    return {
        "d_model": d_model,
        "n_heads": n_heads,
        "n_layers": draw(st.integers(0, 2)),
        "norm": draw(st.sampled_from(["pre", "post"])),
        "activation": draw(st.sampled_from(["relu", "gelu", "tanh"])),
        "pooling": draw(st.sampled_from(poolings)),
        "n_queries": draw(st.integers(1, 2)),
        "core": draw(st.sampled_from(cores)) if encoding == "none" else "attention",
        "n_points": 3,
        "ego": SELF if has_ego else None,
        "count_feature": draw(st.booleans()),
        "position_encoding": encoding,
        "position_scale": 2.0,
    }


@st.composite
def scenes(
    draw: st.DrawFn, *, min_batch: int = 0, max_batch: int = 5, max_slots: int | None = None
) -> Scene:
    """A schema, a batch of observations (empty ones among them) and an encoder for both."""
    if max_slots is None:
        max_slots = draw(st.sampled_from([7, 7, 37]))
    schema = draw(schemas(max_slots=max_slots))
    batch = draw(st.integers(min_batch, max_batch))
    density = draw(st.sampled_from([0.0, 0.3, 0.6, 1.0]))
    seed = draw(st.integers(0, 2**20))
    observation = fill(schema, batch, seed=seed, density=density)
    dtype = draw(st.sampled_from(MASK_DTYPES))
    for group in schema.groups:
        if group.mask_key is not None:
            mask = observation[group.mask_key].astype(dtype)
            column = draw(st.booleans())  # (B, slots, 1) is accepted as well
            observation[group.mask_key] = mask[..., None] if column else mask
    return Scene(schema, observation, draw(encoder_options(schema)), draw(st.integers(0, 99)))


def stacked_permutations(
    rng: np.random.Generator, schema: EntitySchema, observation: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Draw one order per member of the batch and group, (B, slots_g) each."""
    orders = {}
    for group in schema.groups:
        batch, slots = np.asarray(observation[group.name]).shape[:2]
        orders[group.name] = rng.permuted(np.tile(np.arange(slots), (batch, 1)), axis=1)
    return orders
