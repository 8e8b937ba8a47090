from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder import EntityEncoder, EntitySchema, PerEntity, SelectEntity
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.trees import leaves, map_tree

SPACE = spaces.Dict(
    ship=spaces.Box(-1, 1, (5, 3), np.float32),
    ship_mask=spaces.MultiBinary(5),
    rock=spaces.Box(-1, 1, (7, 2), np.float32),
    rock_mask=spaces.MultiBinary(7),
    wind=spaces.Box(-1, 1, (2,), np.float32),
)
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4, start=3),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
    "bounded box": spaces.Box(-2, 2, (3,), np.float32),
    "unbounded box": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "pointer": SelectEntity("rock", 7),
    "actors": PerEntity("ship", 5, 4),
    "actors and targets": PerEntity("ship", 5, 2, target="rock", target_slots=7),
    "dict": spaces.Dict(a=spaces.Discrete(2), b=PerEntity("ship", 5, 3)),
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), SelectEntity("ship", 5)]),
}


def policy(action: spaces.Space[Any], space: Any = SPACE, **options: Any) -> EntityPolicy:
    torch.manual_seed(0)
    return EntityPolicy(space, action, d_model=16, n_heads=2, n_layers=1, **options)


def observations(*lead: int, space: spaces.Dict = SPACE) -> dict[str, torch.Tensor]:
    space.seed(3)
    rows = [space.sample() for _ in range(int(np.prod(lead)))]
    for row in rows:
        row["ship_mask"][0] = row["rock_mask"][1] = 1
    return {
        key: torch.from_numpy(np.stack([row[key] for row in rows])).unflatten(0, lead)
        for key in space.spaces
    }


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_every_action_space_is_served(action: spaces.Space[Any]) -> None:
    p = policy(action)
    generator = torch.Generator().manual_seed(1)
    choice = p.act(observations(11), generator=generator)
    assert choice.value.shape == choice.log_prob.shape == (11,)
    sent = map_tree(lambda x: x.numpy(), choice.env_action)
    for row in range(11):
        one = map_tree(lambda x, i=row: x[i], sent)
        assert action.contains(_typed(one, action))


def _typed(value: Any, space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _typed(value[key], part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_typed(v, part) for v, part in zip(value, space.spaces, strict=True))
    return np.asarray(value).astype(space.dtype)[()]


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_the_update_computes_what_the_rollout_did_in_any_batch(
    action: spaces.Space[Any],
) -> None:
    p = policy(action)
    observation = observations(11)
    choice = p.act(observation, generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([7, 2, 9])
    part = {key: value[rows] for key, value in observation.items()}
    again = p(part).distribution.log_prob(map_tree(lambda x: x[rows], choice.action))
    assert torch.equal(again.detach(), choice.log_prob[rows])  # so the first ratio is exactly 1


def test_the_first_policy_is_nearly_uniform_and_the_first_value_is_not_zero() -> None:
    p = policy(spaces.Discrete(4))
    output = p(observations(11))
    assert float((output.distribution.probs - 0.25).detach().abs().max()) < 0.02
    assert float(output.value.detach().abs().max()) > 0.05


def count_passes(p: EntityPolicy, call: Any) -> int:
    calls: list[int] = []
    hooks = [e.register_forward_hook(lambda *_: calls.append(1)) for e in p.encoders]
    call()
    for hook in hooks:
        hook.remove()
    return len(calls)


def test_one_pass_serves_policy_and_value() -> None:
    p = policy(spaces.Discrete(4))
    assert count_passes(p, lambda: p(observations(3))) == 1
    assert count_passes(p, lambda: p.act(observations(3))) == 1
    assert count_passes(p, lambda: p.value(observations(3))) == 1


def test_value_alone_equals_the_value_beside_the_policy() -> None:
    for options in ({}, {"separate_critic": True}, {"recurrent": 6}):
        p = policy(spaces.Discrete(4), **options)
        observation = observations(5)
        assert torch.equal(p.value(observation), p(observation).value)


def test_a_separate_critic_shares_no_weight_and_no_gradient() -> None:
    p = policy(spaces.Discrete(4), separate_critic=True)
    assert count_passes(p, lambda: p(observations(3))) == 2
    p(observations(3)).value.sum().backward()
    assert all(x.grad is None for x in p.encoder.parameters())
    assert p.critic is not p.encoder


def test_critic_only_features_reach_the_value_alone() -> None:
    schema = EntitySchema.from_space(SPACE, critic_only=["rock", "wind"])
    p = policy(spaces.Discrete(4), schema)
    observation = observations(5)
    changed = dict(observation, rock=observation["rock"] + 1, wind=-observation["wind"])
    before, after = p(observation), p(changed)
    assert torch.equal(before.distribution.log_probs, after.distribution.log_probs)
    assert not torch.allclose(before.value, after.value)


@pytest.mark.parametrize("options", [{}, {"separate_critic": True}])
def test_a_recurrent_policy_in_sequence_equals_it_step_by_step(options: dict[str, Any]) -> None:
    p = policy(spaces.Discrete(4), recurrent=6, **options)
    assert p.state_size == (12 if options else 6)
    observation = observations(5, 3)
    begins = torch.rand(5, 3, generator=torch.Generator().manual_seed(1)) < 0.3
    state = p.initial_state(3)
    whole = p(observation, state=state, begins=begins)
    for t in range(5):
        one = {key: value[t] for key, value in observation.items()}
        output = p(one, state=state, begins=begins[t])
        state = output.state
        assert torch.equal(output.value, whole.value[t])
        assert torch.equal(output.distribution.log_probs, whole.distribution.log_probs[t])
    assert state is not None
    assert whole.state is not None
    assert torch.equal(state, whole.state)
    assert policy(spaces.Discrete(4)).initial_state(3) is None


def test_the_most_probable_action_needs_no_randomness() -> None:
    p = policy(ACTIONS["dict"])
    one, two = (p.act(observations(5), deterministic=True).action for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))


def test_statistics_change_only_when_asked() -> None:
    p = policy(spaces.Discrete(4), separate_critic=True)
    p.act(observations(3))
    assert float(p.encoder.group_norms[0].count) == 0  # type: ignore[arg-type]
    p.update_statistics(observations(3))
    for encoder in p.encoders:
        assert isinstance(encoder, EntityEncoder)
        assert float(encoder.group_norms[0].count) > 0  # type: ignore[arg-type]


def test_weights_do_not_depend_on_the_capacity() -> None:
    wide = EntitySchema.from_space(SPACE).with_slots({"rock": 70})
    small, large = policy(spaces.Discrete(4)), policy(spaces.Discrete(4), wide)
    large.load_state_dict(small.state_dict())
