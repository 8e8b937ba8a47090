"""Claims about action heads on a real encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder.distributions import DiagonalGaussian
from entity_encoder.encoder import EntityEncoder
from entity_encoder.heads import make_action_head
from entity_encoder.schema import EntitySchema
from entity_encoder.spaces import PerEntity, SelectEntity

ALLIES, ENEMIES = 3, 5
ATTACK = PerEntity("ally", ALLIES, 2, target="enemy", target_slots=ENEMIES)

# Action space -> shape of its mask.
FLAT: list[tuple[spaces.Space[Any], tuple[int, ...]]] = [
    (spaces.Discrete(7), (7,)),
    (spaces.Discrete(7, start=3), (7,)),
    (spaces.MultiDiscrete([2, 5, 3]), (10,)),
    (spaces.MultiDiscrete([4, 4], start=[1, 2]), (8,)),
    (spaces.MultiDiscrete(np.array([[3, 3], [3, 3]])), (12,)),
    (spaces.MultiBinary(5), (5,)),
    (spaces.MultiBinary([2, 3]), (2, 3)),
    (spaces.Box(-1, 3, (4,)), (4,)),
    (spaces.Box(-np.inf, np.inf, (2, 3)), (2, 3)),
    (SelectEntity("enemy", ENEMIES), (ENEMIES,)),
    (PerEntity("ally", ALLIES, 4), (ALLIES, 4)),
    (ATTACK, (ALLIES, 2 + ENEMIES)),
    (PerEntity("ally", ALLIES, 0, target="ally", target_slots=ALLIES), (ALLIES, ALLIES)),
]


def make_encoder(
    masks: Mapping[str, tuple[int, ...]] | None = None, **options: Any
) -> EntityEncoder:
    torch.manual_seed(5)
    space = spaces.Dict(
        ally=spaces.Box(-9, 9, (ALLIES, 4)),
        ally_mask=spaces.MultiBinary(ALLIES),
        enemy=spaces.Box(-9, 9, (ENEMIES, 2)),
        enemy_mask=spaces.MultiBinary(ENEMIES),
        step=spaces.Box(0, 1, (1,)),
    )
    for key, shape in (masks or {}).items():
        space.spaces[key] = spaces.MultiBinary(shape)
    return EntityEncoder(space, d_model=16, n_heads=2, n_layers=1, **options)


def make_observation(rows: int, seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    observation = {
        "ally": torch.randn(rows, ALLIES, 4, generator=g),
        "ally_mask": torch.rand(rows, ALLIES, generator=g) < 0.6,
        "enemy": torch.randn(rows, ENEMIES, 2, generator=g),
        "enemy_mask": torch.rand(rows, ENEMIES, generator=g) < 0.6,
        "step": torch.rand(rows, 1, generator=g),
    }
    observation["ally_mask"][:, 0] = True
    observation["enemy_mask"][:, 1] = True
    return observation


def randomise(module: torch.nn.Module, seed: int = 1) -> None:
    """Make scores differ clearly, unlike a fresh policy's."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.5)


def random_mask(rows: int, shape: tuple[int, ...], seed: int = 2) -> Tensor:
    return torch.rand(rows, *shape, generator=torch.Generator().manual_seed(seed)) < 0.5


@pytest.mark.parametrize(("space", "_shape"), FLAT, ids=lambda v: str(v)[:40])
def test_actions_lie_in_the_space(space: spaces.Space[Any], _shape: tuple[int, ...]) -> None:
    encoder = make_encoder()
    head = make_action_head(space, encoder, hidden=(11,))
    randomise(head)
    observation = make_observation(6)
    d = head(encoder(observation), observation)
    for action in (d.sample(torch.Generator().manual_seed(3)), d.mode()):
        assert d.log_prob(action).shape == d.entropy().shape == (6,)
        assert torch.isfinite(d.log_prob(action)).all()
        for row in d.to_env(action):
            assert space.contains(row.numpy().astype(space.dtype)), row
    (d.log_prob(action) + d.entropy()).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in head.parameters())


@pytest.mark.parametrize(("space", "_shape"), FLAT, ids=lambda v: str(v)[:40])
def test_rollout_and_update_agree_bitwise_in_any_batch(
    space: spaces.Space[Any], _shape: tuple[int, ...]
) -> None:
    encoder = make_encoder()
    head = make_action_head(space, encoder, hidden=(11,))
    randomise(head)
    observation = make_observation(19)
    with torch.no_grad():
        d = head(encoder(observation), observation)
        action = d.sample(torch.Generator().manual_seed(3))
        log_prob = d.log_prob(action)
    for rows in ([4], [3, 17], [2, 5, 11], list(range(18, 2, -1))):
        part = {key: value[rows] for key, value in observation.items()}
        again = head(encoder(part), part).log_prob(action[rows])
        assert torch.equal(again.detach(), log_prob[rows])


@pytest.mark.parametrize(("space", "shape"), FLAT, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_masked_choices_are_never_taken(
    space: spaces.Space[Any], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    encoder = make_encoder({"action_mask": shape})
    head = make_action_head(space, encoder)
    randomise(head)
    rows = 40
    observation = make_observation(rows)
    mask = random_mask(rows, shape)
    if isinstance(space, SelectEntity):
        mask[:, 1] = True
    elif isinstance(space, PerEntity):
        mask[..., 0] = True
    elif isinstance(space, spaces.Discrete):
        mask[:, 2] = True
    elif isinstance(space, spaces.MultiDiscrete):
        mask[:, np.cumsum(space.nvec.flatten()) - 1] = True
    d = head(encoder(observation), {**observation, "action_mask": mask.to(dtype)})
    action = d.sample(torch.Generator().manual_seed(4))
    assert torch.isfinite(d.log_prob(action)).all()
    assert torch.isfinite(d.entropy()).all()
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        assert (action[~mask] == 0).all()
    elif not isinstance(space, spaces.MultiDiscrete):
        picked = action - int(getattr(space, "start", 0))
        assert mask.gather(1, picked[:, None]).all()
        assert (d.probs[~mask] == 0).all()
    elif isinstance(space, PerEntity):
        present = observation["ally_mask"]
        assert mask.gather(2, action[..., None]).squeeze(-1)[present].all()
        assert (action[~present] == 0).all()
    else:
        first = np.cumsum(space.nvec.flatten()) - space.nvec.flatten()
        place = action.flatten(1) - torch.as_tensor(space.start).flatten() + torch.as_tensor(first)
        assert mask.gather(1, place).all()


@pytest.mark.parametrize(("space", "shape"), FLAT, ids=lambda v: str(v)[:40])
def test_heads_know_the_shapes_of_their_masks(
    space: spaces.Space[Any], shape: tuple[int, ...]
) -> None:
    slots = {"ally": ALLIES, "enemy": ENEMIES}
    assert make_action_head(space, make_encoder()).mask_shapes(slots) == {"action_mask": shape}
    nested = make_action_head(spaces.Dict(a=spaces.Tuple([space])), make_encoder())
    assert nested.mask_shapes(slots) == {"action_mask_a_0": shape}


def test_multi_discrete_masks_may_be_tables() -> None:
    encoder = make_encoder({"action_mask": (8,)})
    head = make_action_head(spaces.MultiDiscrete([4, 4]), encoder)
    observation = make_observation(6)
    mask = random_mask(6, (2, 4))
    mask[..., 0] = True
    encoding = encoder(observation)
    flat = head(encoding, {**observation, "action_mask": mask.flatten(1)})
    table = head(encoding, {**observation, "action_mask": mask})
    assert torch.equal(flat.probs, table.probs)


def test_a_pointer_never_picks_an_absent_entity_and_names_slots() -> None:
    encoder = make_encoder()
    head = make_action_head(SelectEntity("enemy", ENEMIES), encoder)
    randomise(head)
    observation = make_observation(50)
    d = head(encoder(observation), observation)
    assert (d.probs[~observation["enemy_mask"]] == 0).all()
    assert observation["enemy_mask"].gather(1, d.sample()[:, None]).all()
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = dict(observation)
    moved["enemy"], moved["enemy_mask"] = (
        observation[key][:, order] for key in ("enemy", "enemy_mask")
    )
    permuted = head(encoder(moved), moved)
    torch.testing.assert_close(permuted.probs, d.probs[:, order], atol=1e-6, rtol=1e-5)
    assert torch.equal(order[permuted.mode()], d.mode())


def test_junk_in_absent_slots_is_unobservable() -> None:
    encoder = make_encoder({"action_mask": (ALLIES, 2 + ENEMIES)})
    head = make_action_head(ATTACK, encoder)
    randomise(head)
    observation = make_observation(6)
    observation["action_mask"] = torch.ones(6, ALLIES, 2 + ENEMIES)
    poisoned = dict(observation)
    for group in ("ally", "enemy"):
        absent = ~observation[f"{group}_mask"][..., None]
        poisoned[group] = observation[group].masked_fill(absent, np.nan)
    absent = ~observation["ally_mask"][..., None]
    poisoned["action_mask"] = observation["action_mask"].masked_fill(absent, 0.0)
    results = []
    for o in (observation, poisoned):
        encoder.zero_grad()
        head.zero_grad()
        d = head(encoder(o), o)
        (d.log_prob(d.mode()) + d.entropy()).sum().backward()
        grads = [p.grad for p in [*encoder.parameters(), *head.parameters()]]
        results.append([d.probs, d.mode(), *(g.clone() for g in grads if g is not None)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_actors_choose_moves_and_present_targets() -> None:
    encoder = make_encoder()
    head = make_action_head(ATTACK, encoder)
    randomise(head)
    observation = make_observation(50)
    d = head(encoder(observation), observation)
    actors, targets = observation["ally_mask"], observation["enemy_mask"]
    assert d.probs.shape == (50, ALLIES, 2 + ENEMIES)
    assert (d.probs[..., 2:][~targets[:, None].expand(-1, ALLIES, -1)] == 0).all()
    torch.testing.assert_close(d.probs.sum(-1), actors.float())
    assert (d.probs[..., 2:].sum(-1)[actors] > 0).all()
    alone = {key: value.clone() for key, value in observation.items()}
    alone["enemy_mask"][:] = False
    moves = head(encoder(alone), alone)
    assert (moves.probs[..., 2:] == 0).all()
    assert (moves.sample() < 2).all()


def test_actor_by_target_masks_close_single_pairs() -> None:
    encoder = make_encoder({"action_mask": (ALLIES, 2 + ENEMIES)})
    head = make_action_head(ATTACK, encoder)
    observation = make_observation(1)
    observation["ally_mask"][:] = True
    observation["enemy_mask"][:] = True
    mask = torch.ones(1, ALLIES, 2 + ENEMIES)
    mask[0, 1, 2 + 3] = 0  # ally 1 does not reach enemy 3
    d = head(encoder(observation), {**observation, "action_mask": mask})
    assert torch.equal(d.probs == 0, mask == 0)


def test_a_set_without_actors_has_log_probability_and_entropy_zero() -> None:
    encoder = make_encoder()
    head = make_action_head(PerEntity("ally", ALLIES, 4), encoder)
    observation = make_observation(2)
    observation["ally_mask"][1] = False
    d = head(encoder(observation), observation)
    assert d.log_prob(d.sample())[1] == d.entropy()[1] == 0
    assert d.entropy()[0] > 0


def test_no_legal_action_names_environment_and_slot() -> None:
    encoder = make_encoder({"action_mask": (ALLIES, 4)})
    head = make_action_head(PerEntity("ally", ALLIES, 4), encoder)
    observation = make_observation(6)
    observation["ally_mask"][4] = True
    mask = torch.ones(6, ALLIES, 4)
    mask[4, 2] = 0
    with pytest.raises(ValueError, match="got none in environment 4, slot 2"):
        head(encoder(observation), {**observation, "action_mask": mask})
    pointer = make_action_head(SelectEntity("enemy", ENEMIES), make_encoder())
    observation["enemy_mask"][3] = False
    with pytest.raises(ValueError, match=r"presence of 'enemy' .* got none in environment 3"):
        pointer(encoder(observation), observation)
    active = torch.ones(6, dtype=torch.bool)
    active[3] = False
    d = pointer(encoder(observation), observation, active=active)
    assert d.log_prob(d.sample())[3] == d.entropy()[3] == 0


@pytest.mark.parametrize(("space", "_shape"), FLAT, ids=lambda v: str(v)[:40])
def test_rows_that_do_not_act_contribute_nothing(
    space: spaces.Space[Any], _shape: tuple[int, ...]
) -> None:
    encoder = make_encoder()
    head = make_action_head(space, encoder)
    observation = make_observation(4)
    active = torch.tensor([True, False, True, False])
    d = head(encoder(observation), observation, active=active)
    everybody = head(encoder(observation), observation)
    action = everybody.sample()
    assert (d.log_prob(action)[~active] == 0).all()
    assert (d.entropy()[~active] == 0).all()
    assert torch.equal(d.log_prob(action)[active], everybody.log_prob(action)[active])


@pytest.mark.parametrize(("space", "_shape"), FLAT, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("lead", [(), (0,), (2, 3)])
def test_leading_dimensions_are_free(
    space: spaces.Space[Any], _shape: tuple[int, ...], lead: tuple[int, ...]
) -> None:
    encoder = make_encoder()
    head = make_action_head(space, encoder)
    rows = int(np.prod(lead))
    flat = make_observation(rows)
    observation = {key: value.reshape(*lead, *value.shape[1:]) for key, value in flat.items()}
    d = head(encoder(observation), observation)
    action = d.sample()
    assert d.log_prob(action).shape == d.entropy().shape == lead
    expected = head(encoder(flat), flat)
    assert torch.equal(d.mode().reshape(expected.mode().shape), expected.mode())


def test_box_actions_are_scaled_to_their_bounds() -> None:
    encoder = make_encoder()
    low, high = (np.array(b, np.float32) for b in ([10.0, -np.inf, 2.0], [30.0, 5.0, 2.0]))
    space = spaces.Box(low, high)
    head = make_action_head(space, encoder)
    for p in head.parameters():
        torch.nn.init.zeros_(p)
    observation = make_observation(4)
    d = head(encoder(observation), observation)
    assert isinstance(d, DiagonalGaussian)
    # Middle and half the width; nothing to scale by in an unbounded or fixed component.
    assert d.mean[0].tolist() == [20.0, 0.0, 0.0]
    assert d.std[0].tolist() == pytest.approx([10.0, 1.0, 1.0])
    assert d.to_env(torch.tensor([[99.0, 99.0, 99.0]])).tolist() == [[30.0, 5.0, 2.0]]


def test_box_actions_can_be_squashed() -> None:
    encoder = make_encoder()
    head = make_action_head(spaces.Box(-1, 3, (4,)), encoder, squash=True)
    observation = make_observation(4)
    d = head(encoder(observation), observation)
    raw = torch.tensor([[0.0, 100.0, -100.0, 0.5]])
    expected = torch.tensor([[1.0, 3.0, -1.0, 1 + 2 * np.tanh(0.5)]])
    torch.testing.assert_close(d.to_env(raw), expected.float())
    assert torch.isfinite(d.log_prob(d.sample())).all()
    with pytest.raises(ValueError, match="squash=True must have finite bounds"):
        make_action_head(spaces.Box(-np.inf, 3, (4,)), encoder, squash=True)


def test_weights_do_not_depend_on_the_number_of_slots() -> None:
    def build(allies: int, enemies: int) -> tuple[EntityEncoder, torch.nn.Module]:
        schema = make_encoder().schema.with_slots({"ally": allies, "enemy": enemies})
        encoder = EntityEncoder(schema, d_model=16, n_heads=2, n_layers=1)
        space = spaces.Dict(
            pick=SelectEntity("enemy", enemies),
            act=PerEntity("ally", allies, 2, target="enemy", target_slots=enemies),
        )
        return encoder, make_action_head(space, encoder)

    (encoder, head), (wide_encoder, wide_head) = build(ALLIES, ENEMIES), build(8, 11)
    wide_encoder.load_state_dict(encoder.state_dict())
    wide_head.load_state_dict(head.state_dict())
    observation = make_observation(4)
    wide = dict(observation)
    for group, slots in (("ally", 8 - ALLIES), ("enemy", 11 - ENEMIES)):
        for key, pad in ((group, (0, 0, 0, slots)), (f"{group}_mask", (0, slots))):
            wide[key] = torch.nn.functional.pad(observation[key], pad)
    a = head(encoder(observation), observation)
    b = wide_head(wide_encoder(wide), wide)
    action = a.mode()
    padded = torch.nn.functional.pad(action["act"], (0, 8 - ALLIES))
    torch.testing.assert_close(
        a.log_prob(action), b.log_prob({"pick": action["pick"], "act": padded})
    )


def test_dict_and_tuple_spaces_nest_and_read_their_own_masks() -> None:
    space = spaces.Dict(
        kind=spaces.Discrete(3),
        rest=spaces.Tuple([SelectEntity("enemy", ENEMIES), spaces.Box(-1, 1, (2,))]),
    )
    masks = {"action_mask_kind": (3,), "action_mask_rest_0": (ENEMIES,)}
    encoder = make_encoder(masks)
    head = make_action_head(space, encoder)
    observation = make_observation(6)
    observation["action_mask_kind"] = torch.tensor([[0, 1, 0]]).expand(6, 3)
    observation["action_mask_rest_0"] = torch.ones(6, ENEMIES)
    observation["action_mask_rest_0"][:, 2:] = 0
    d = head(encoder(observation), observation)
    action = d.sample()
    assert (action["kind"] == 1).all()
    assert (action["rest"][0] < 2).all()
    env = d.to_env(action)
    for i in range(6):
        row = {"kind": env["kind"][i].numpy(), "rest": tuple(x[i].numpy() for x in env["rest"])}
        assert space.contains(row)
    assert d.log_prob(action).shape == (6,)


def test_a_part_that_cannot_matter_needs_no_legal_choice() -> None:
    space = spaces.Dict(attack=spaces.Discrete(2), target=SelectEntity("enemy", ENEMIES))
    encoder = make_encoder({"action_mask_attack": (2,)})
    observation = make_observation(3)
    observation["enemy_mask"][1] = False
    observation["action_mask_attack"] = torch.tensor([[1, 1], [1, 0], [1, 1]])
    plain = make_action_head(space, encoder)
    with pytest.raises(ValueError, match="environment 1"):
        plain(encoder(observation), observation)
    head = make_action_head(space, encoder, conditions={"target": ("attack", [1])})
    d = head(encoder(observation), observation)
    action = d.sample()
    assert torch.isfinite(d.log_prob(action)).all()
    idle = {"attack": torch.zeros(3, dtype=torch.long), "target": action["target"]}
    expected = d.parts["attack"].log_prob(idle["attack"])
    assert torch.equal(d.log_prob(idle), expected)
    unmasked = make_action_head(space, make_encoder(), conditions={"target": ("attack", [1])})
    whole = {**make_observation(3)}
    active = torch.tensor([True, False, True])
    assert unmasked(encoder(whole), whole, active=active).entropy()[1] == 0


def test_masks_must_stay_with_their_observation() -> None:
    encoder = make_encoder({"action_mask": (7,)})
    head = make_action_head(spaces.Discrete(7), encoder)
    observation = make_observation(2)
    with pytest.raises(ValueError, match="observation must hold the action mask 'action_mask'"):
        head(encoder(observation), observation)
    with pytest.raises(ValueError, match=r"'action_mask' must have shape \(2, 7\), got \(2, 5\)"):
        head(encoder(observation), {**observation, "action_mask": torch.ones(2, 5)})


def test_numpy_observations_work() -> None:
    encoder = make_encoder({"action_mask": (ENEMIES,)})
    head = make_action_head(SelectEntity("enemy", ENEMIES), encoder)
    tensors = {**make_observation(2), "action_mask": torch.ones(2, ENEMIES, dtype=torch.int8)}
    arrays = {key: value.numpy() for key, value in tensors.items()}
    assert torch.equal(head(encoder(arrays), arrays).probs, head(encoder(tensors), tensors).probs)


def test_misfit_spaces_are_named_at_construction() -> None:
    encoder = make_encoder()
    with pytest.raises(ValueError, match=r"action space must be one of .*got Text"):
        make_action_head(spaces.Text(5), encoder)
    with pytest.raises(ValueError, match=r"Box of floats.*got Box\(0, 9"):
        make_action_head(spaces.Box(0, 9, (2,), np.int64), encoder)
    with pytest.raises(ValueError, match="at least one part"):
        make_action_head(spaces.Dict({}), encoder)
    with pytest.raises(ValueError, match=r"group must be one .* 'enmy'; did you mean 'enemy'"):
        make_action_head(SelectEntity("enmy", ENEMIES), encoder)
    with pytest.raises(ValueError, match=r"group 'enemy' must have 5 slots .* got 7"):
        make_action_head(SelectEntity("enemy", 7), encoder)
    with pytest.raises(ValueError, match=r"target 'enemy' must have 5 slots .* got 6"):
        make_action_head(PerEntity("ally", ALLIES, 1, target="enemy", target_slots=6), encoder)
    schema = EntitySchema.from_space(encoder.schema.space(), critic_only=["enemy"])
    hidden = EntityEncoder(schema, d_model=16, n_heads=2, n_layers=1)
    with pytest.raises(ValueError, match="'enemy' must be visible to the policy"):
        make_action_head(SelectEntity("enemy", ENEMIES), hidden)


def test_masks_that_belong_to_no_part_are_named() -> None:
    space = spaces.Dict(kind=spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"among \['action_mask_kind'\] .*got 'action_mask'"):
        make_action_head(space, make_encoder({"action_mask": (3,)}))
    twice = spaces.Dict({"a_b": spaces.Discrete(3), "a": spaces.Dict(b=spaces.Discrete(2))})
    with pytest.raises(ValueError, match="must have distinct mask keys"):
        make_action_head(twice, make_encoder())


def test_misfit_conditions_are_named() -> None:
    encoder = make_encoder()
    space = spaces.Dict(kind=spaces.Discrete(3), move=spaces.Box(-1, 1, (2,)))
    for conditions, message in (
        ({"mve": ("kind", [1])}, "conditions must name parts .*'mve'; did you mean 'move'"),
        ({"kind": ("move", [1])}, "decides about 'kind' must be an unconditional Discrete"),
        ({"move": ("kind", [3])}, "must list choices of Discrete"),
        ({"move": ("kind", [])}, "must list choices of Discrete"),
    ):
        with pytest.raises(ValueError, match=message):
            make_action_head(space, encoder, conditions=conditions)
    with pytest.raises(ValueError, match="conditions must go with a Dict or Tuple"):
        make_action_head(spaces.Discrete(3), encoder, conditions={"a": ("b", [1])})
