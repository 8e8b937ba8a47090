"""What users of other entity encoders asked for or stumbled over, by its number."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EgoFrame, EntityEncoder, EntityGroup, EntitySchema
from entity_encoder.envs.bridges.capacity import Capacity
from entity_encoder.heads import ActionHead, make_action_head
from entity_encoder.spaces import PerEntity, SelectEntity
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


def test_use_03_a_choice_is_a_slot_of_the_observation() -> None:
    """Pointing at 6 targets with holes: absent ones never, and moved targets move the choice."""
    space = spaces.Dict(
        target=spaces.Box(-9, 9, (6, 2), np.float32), target_mask=spaces.MultiBinary(6)
    )
    torch.manual_seed(0)
    encoder = EntityEncoder(space, d_model=16, n_heads=2)
    head = make_action_head(SelectEntity("target", 6), encoder)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    rng = np.random.default_rng(0)
    observation = {
        "target": rng.normal(size=(3, 6, 2)),
        "target_mask": np.array([[1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 1, 0], [1] * 6]),
    }
    order = [4, 2, 0, 5, 1, 3]
    moved = {key: value[:, order] for key, value in observation.items()}

    def probabilities(shown: dict[str, Any]) -> torch.Tensor:  # (B, slots)
        chosen = head(encoder(shown), {})
        return torch.stack([chosen.log_prob(torch.full((3,), i)).exp() for i in range(6)], 1)

    probability = probabilities(observation)
    absent = torch.from_numpy(observation["target_mask"] == 0)
    assert (probability[absent] == 0).all()
    close(probability.sum(1), torch.ones(3))
    close(probabilities(moved), probability[:, order])
    best = head(encoder(observation), {}).mode()
    assert [order[i] for i in head(encoder(moved), {}).mode().tolist()] == best.tolist()


def _crew() -> tuple[EntityEncoder, ActionHead]:
    space = spaces.Dict(crew=spaces.Box(-99, 99, (8, 1)), crew_mask=spaces.MultiBinary(8))
    torch.manual_seed(0)
    encoder = EntityEncoder(space, d_model=16, n_heads=2)
    head = make_action_head(PerEntity("crew", 8, 3), encoder)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    return encoder, head


def test_use_05_actions_reach_entities_by_slot_whatever_their_ids() -> None:
    """Ids 4 to 11 are features; of the actors 8 and 10 each chooses in the slot it stands in."""
    encoder, head = _crew()
    ids = np.arange(4, 12)
    choices: dict[int, set[int]] = {8: set(), 10: set()}
    for shown in (ids, ids[::-1].copy(), np.roll(ids, 3)):
        present = np.isin(shown, (8, 10))
        observation = {"crew": shown[:, None], "crew_mask": present}
        action = head(encoder(observation), {}).mode().numpy()
        assert action.shape == (8,)
        for number in (8, 10):
            choices[number].add(int(action[shown == number][0]))
        assert not action[np.logical_not(present)].any()
    assert all(len(found) == 1 for found in choices.values())


def test_use_13_no_actor_one_and_five_in_one_batch() -> None:
    encoder, head = _crew()
    mask = np.arange(8) < np.array([[0], [1], [5]])
    observation = {"crew": np.random.default_rng(0).normal(size=(3, 8, 1)), "crew_mask": mask}
    chosen = head(encoder(observation), {})
    action = chosen.sample(torch.Generator().manual_seed(0))
    log_prob, entropy = chosen.log_prob(action), chosen.entropy()
    assert log_prob[0] == 0
    assert entropy[0] == 0
    assert (log_prob[1:] < 0).all()
    (log_prob.sum() + entropy.sum()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in head.parameters() if p.grad is not None)
    # What absent actors are said to do counts for nothing.
    changed = torch.where(torch.from_numpy(mask), action, (action + 1) % 3)
    assert torch.equal(chosen.log_prob(changed), log_prob)


def test_use_17_entities_that_do_not_fit_are_left_out_by_rule_and_counted() -> None:
    """20 entities, 16 slots: the nearest stay, one warning, a counter, never chance."""
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    capacity = Capacity("unit", 16, priority=lambda rows: -np.hypot(rows[:, 0], rows[:, 1]))
    with pytest.warns(UserWarning, match="20 entities of 'unit' do not fit into 16 slots"):
        padded, mask = capacity.pad(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, _ = capacity.pad(rows)
    nearest = sorted(range(20), key=lambda i: float(rows[i, 0]) ** 2 + float(rows[i, 1]) ** 2)
    assert np.array_equal(padded, rows[sorted(nearest[:16])])
    assert mask.sum() == 16
    assert np.array_equal(padded, again)
    assert capacity.truncated == 8


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
