"""What users of other entity encoders asked for or stumbled over, by its number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from entity_encoder import EgoFrame, EntityEncoder, EntityGroup, EntitySchema
from tests.cases.adapter import A
from tests.cases.test_att import close, obs


def test_use_01_attention_maps_are_aligned_with_slots_and_change_nothing() -> None:
    encoder, observation = A.encoder(6), obs(empty=(2,))
    plain = encoder(observation)
    shown = encoder(observation, return_attention=True)
    assert torch.equal(shown.pooled, plain.pooled)
    assert torch.equal(shown.entities, plain.entities)
    maps = shown.attention  # (B, layers, H, N, N)
    assert maps is not None
    assert maps.shape == (5, 2, 4, 7, 7)
    present = torch.from_numpy(observation["mask"] == 1)
    sums = present[:, None, None].expand(maps.shape[:-1]).float()
    torch.testing.assert_close(maps.sum(-1), sums, atol=1e-5, rtol=0)
    assert (maps.transpose(-1, -2)[~present[:, None, None].expand(maps.shape[:-1])] == 0).all()
    # Moving slots moves rows and columns with them.
    order = [3, 0, 6, 2, 5, 1, 4]
    moved = encoder({k: v[:, order] for k, v in observation.items()}, return_attention=True)
    assert moved.attention is not None
    close(moved.attention, maps[..., order, :][..., order])


def _three_kinds(order: tuple[int, ...]) -> tuple[EntitySchema, EntityEncoder]:
    groups = (
        EntityGroup("unit", 4, ("a", "b", "c", "d", "e"), "unit_mask"),
        EntityGroup("resource", 3, ("a", "b"), "resource_mask"),
        EntityGroup("marker", 6, (), "marker_mask"),
    )
    torch.manual_seed(0)
    schema = EntitySchema(tuple(groups[i] for i in order))
    return schema, EntityEncoder(schema, d_model=16, n_heads=2)


def test_use_02_kinds_differ_in_features_and_may_have_none() -> None:
    _, encoder = _three_kinds((0, 1, 2))
    rng = np.random.default_rng(0)
    observation: dict[str, Any] = {
        "unit": rng.normal(size=(5, 4, 5)),
        "unit_mask": rng.random((5, 4)) < 0.5,
        "resource": rng.normal(size=(5, 3, 2)),
        "resource_mask": np.zeros((5, 3)),
        "marker": np.zeros((5, 6, 0)),
        "marker_mask": rng.random((5, 6)) < 0.5,
    }
    encoding = encoder(observation)
    assert encoding.group("marker")[0].shape == (5, 6, 16)
    encoding.pooled.square().sum().backward()
    learned = [
        any(p.grad is not None and bool(p.grad.any()) for p in embed.parameters())
        for embed in encoder.embeddings
    ]
    assert learned == [True, False, True]
    # Another order of kinds with the same weights is the same encoder.
    _, other = _three_kinds((2, 0, 1))
    state = encoder.state_dict()
    for new, old in enumerate((2, 0, 1)):
        for name, value in encoder.state_dict().items():
            for part in ("embeddings", "group_norms"):
                if name.startswith(f"{part}.{old}."):
                    state[f"{part}.{new}." + name.split(".", 2)[2]] = value
    other.load_state_dict({name: state[name] for name in other.state_dict()})
    close(other(observation).pooled, encoding.pooled)


@pytest.mark.parametrize("pool", ["mean", "max", "cls", "attention", "sum"])
def test_use_06_the_order_of_entities_means_nothing(pool: str) -> None:
    encoder, observation = A.encoder(6, pool=pool), obs(empty=(2,))
    order = [3, 0, 6, 2, 5, 1, 4]
    features, entities = A.run(encoder, observation)
    moved, moved_entities = A.run(encoder, {k: v[:, order] for k, v in observation.items()})
    close(moved, features)
    close(moved_entities, entities[:, order])


def test_use_08_weights_know_nothing_of_the_capacity() -> None:
    small, large = A.encoder(6, seed=1, max_n=8), A.encoder(6, seed=2, max_n=32)
    large.load_state_dict(small.state_dict())
    observation = obs()
    wide = {
        "entities": np.pad(observation["entities"], ((0, 0), (0, 25), (0, 0))),
        "mask": np.pad(observation["mask"], ((0, 0), (0, 25))),
    }
    assert torch.equal(A.run(large, wide)[0], A.run(small, observation)[0])


def test_use_09_a_large_batch_is_encoded_in_pieces() -> None:
    """No activation of a chunk is larger than 512 entities by the widest layer."""
    schema = EntitySchema((EntityGroup("a", 64, ("x", "y"), "m"),))
    torch.manual_seed(0)
    whole = EntityEncoder(schema, d_model=16, n_heads=2, chunk_rows=10**9)
    pieces = EntityEncoder(schema, d_model=16, n_heads=2, chunk_rows=512)
    pieces.load_state_dict(whole.state_dict())
    rng = np.random.default_rng(0)
    observation = {"a": rng.normal(size=(128, 64, 2)), "m": rng.random((128, 64)) < 0.5}
    largest: list[int] = []
    for layer in pieces.stack.layers:
        for module in layer.modules():
            module.register_forward_hook(lambda m, i, o: largest.append(o.numel()))
    encoding, expected = pieces(observation), whole(observation)
    assert torch.equal(encoding.pooled, expected.pooled)
    assert torch.equal(encoding.entities, expected.entities)
    assert max(largest) <= 512 * 3 * 16  # queries, keys and values of one chunk


def test_use_10_an_entity_of_zeros_is_there() -> None:
    encoder, observation = A.encoder(6), obs(1)
    observation["mask"][:] = [1, 1, 0, 0, 0, 0, 0]
    observation["entities"][0, 1] = 0
    without = dict(observation, mask=np.array([[1, 0, 0, 0, 0, 0, 0]]))
    assert not torch.allclose(A.run(encoder, observation)[0], A.run(encoder, without)[0])


def test_use_15_the_dead_do_not_enter_the_statistics() -> None:
    """A unit dies at t = 3 of 6: what it still reports counts for nothing."""
    reports = np.array([1, 2, 3, 1e9, np.nan, -7]).reshape(6, 1, 1)
    alive = np.array([1, 1, 1, 0, 0, 0]).reshape(6, 1)
    norm = A.norm_stats(1).norm
    norm.update(reports, alive)
    assert norm.count == 3
    assert norm.mean == 2
    schema = EntitySchema((EntityGroup("a", 1, ("x",), "m"),))
    encoder = EntityEncoder(schema, d_model=16, n_heads=2)
    encoding = encoder({"a": reports, "m": alive})
    assert torch.equal(encoding.pooled[3:], encoder.empty.expand(3, -1))


@pytest.mark.parametrize("turning", [False, True])
@pytest.mark.parametrize("encoding", ["none", "rotary", "bias"])
def test_use_20_an_ego_frame_makes_a_moved_scene_the_same(turning: bool, encoding: str) -> None:
    ship = EntityGroup("ship", 1, ("x", "y", "c", "s"), "a", None, ("x", "y"), ("c", "s"))
    rock = EntityGroup("rock", 5, ("x", "y", "vx", "vy"), "b", None, ("x", "y"), ("vx", "vy"))
    heading = ("c", "s") if turning else ()
    schema = EntitySchema((ship, rock), (), EgoFrame("ship", heading=heading))
    options: dict[str, Any] = {"d_model": 32, "n_heads": 2, "position_encoding": encoding}
    torch.manual_seed(0)
    framed = EntityEncoder(schema, **options)
    plain = EntityEncoder(EntitySchema((ship, rock)), **options)
    plain.load_state_dict(framed.state_dict())
    rng = np.random.default_rng(0)
    tables = {"ship": rng.normal(size=(7, 1, 4)), "rock": rng.normal(size=(7, 5, 4))}
    masks = {"a": np.ones((7, 1)), "b": rng.random((7, 5)) < 0.6}
    turn = np.exp(2.1j) if turning else 1.0

    def move(table: np.ndarray) -> np.ndarray:
        point = (table[..., 0] + 1j * table[..., 1]) * turn + (4 - 9j)
        vector = (table[..., 2] + 1j * table[..., 3]) * turn
        return np.stack([point.real, point.imag, vector.real, vector.imag], axis=-1)

    moved = {name: move(table) for name, table in tables.items()}
    close(framed({**moved, **masks}).pooled, framed({**tables, **masks}).pooled, 1e-4)
    assert not torch.allclose(plain({**moved, **masks}).pooled, plain({**tables, **masks}).pooled)
