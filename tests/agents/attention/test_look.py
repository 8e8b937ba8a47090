"""What the policy sees is what the encoder computed, entity by entity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from entity_encoder.agents.attention import look_at
from entity_encoder.agents.policy import EntityPolicy

SPACE = spaces.Dict(
    ship=spaces.Box(-1, 1, (1, 3), np.float32),
    ship_mask=spaces.MultiBinary(1),
    rock=spaces.Box(-1, 1, (5, 2), np.float32),
    rock_mask=spaces.MultiBinary(5),
)
ROCKS = [0, 1, 1, 0, 1]


def policy(**options: Any) -> EntityPolicy:
    torch.manual_seed(0)
    return EntityPolicy(SPACE, spaces.Discrete(3), d_model=12, n_heads=3, n_layers=2, **options)


def observation(rocks: list[int] = ROCKS, ship: int = 1, rows: int = 2) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {
        "ship": torch.randn(rows, 1, 3),
        "ship_mask": torch.full((rows, 1), bool(ship)),
        "rock": torch.randn(rows, 5, 2),
        "rock_mask": torch.tensor(rocks, dtype=torch.bool).expand(rows, 5),
    }


def test_maps_value_and_probabilities_are_those_of_the_first_row() -> None:
    agent, seen = policy(), observation()
    look = look_at(agent, seen)
    assert look.entities == (("ship", 0), ("rock", 1), ("rock", 2), ("rock", 4))
    assert look.labels == ["ship", "rock 1", "rock 2", "rock 4"]
    maps = agent.encoder(seen, return_attention=True).attention[0].detach().numpy()
    present = [0, 2, 3, 5]
    np.testing.assert_allclose(look.attention, maps[:, :, present][..., present], atol=1e-6)
    np.testing.assert_allclose(look.attention.sum(-1), 1.0, atol=1e-5)
    with torch.no_grad():
        output = agent(seen)
    assert look.value == pytest.approx(float(output.value[0]), abs=1e-6)
    shares = [bar.share for bar in look.actions]
    assert shares == pytest.approx(output.distribution.probs[0].tolist(), abs=1e-6)
    assert look.state is None


def test_attention_on_request_changes_no_bit_of_the_rest() -> None:
    agent, seen = policy(), observation()
    plain, asked = agent(seen), agent(seen, return_attention=True)
    assert torch.equal(plain.value, asked.value)
    assert torch.equal(plain.distribution.log_probs, asked.distribution.log_probs)
    assert plain.encoding.attention is None


def test_the_class_token_comes_last() -> None:
    look = look_at(policy(pooling="class"), observation())
    assert look.labels[-1] == "class token"
    assert look.attention.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(look.attention.sum(-1), 1.0, atol=1e-5)


def test_a_set_without_entities_has_empty_maps() -> None:
    look = look_at(policy(), observation([0] * 5, ship=0))
    assert look.entities == ()
    assert look.attention.shape == (2, 3, 0, 0)
    assert np.isfinite(look.value)


def test_memory_goes_in_and_comes_out() -> None:
    agent, seen = policy(recurrent=7), observation()
    first = look_at(agent, seen)
    assert first.state is not None
    assert first.state.shape == (1, 7)
    second = look_at(agent, seen, state=first.state)
    assert second.value != first.value
    again = look_at(agent, seen, state=second.state, begins=torch.tensor([True, True]))
    assert again.value == pytest.approx(first.value, abs=1e-6)


def test_a_core_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="return_attention needs core='attention'"):
        look_at(policy(core="pool"), observation())
