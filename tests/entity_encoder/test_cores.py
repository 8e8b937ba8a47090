"""Claims about the ways entities interact; their values are tested with the transformer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entity_encoder import EntityEncoder, EntityGroup, EntitySchema, EntityTransformer
from entity_encoder.cores import EgoAttention, InducedAttention, make_mixer
from entity_encoder.layout import dense_layout
from entity_encoder.transformer import Context
from tests.entity_encoder.strategies import CPU_STRATEGIES, make_encoder

LINEAR = ("induced", "latent", "pool")
SCHEMA = EntitySchema(
    (EntityGroup("me", 1, ("a", "b"), "me_mask"), EntityGroup("it", 5, ("a", "b"), "it_mask"))
)


@pytest.mark.parametrize("core", LINEAR)
def test_every_entity_hears_of_every_other(core: str) -> None:
    torch.manual_seed(0)
    transformer = EntityTransformer(3, d_model=8, n_heads=2, n_layers=1, core=core)
    x = torch.randn(1, 7, 3)
    moved = x.clone()
    moved[0, 4] += 1
    assert (transformer(x) != transformer(moved)).any(-1).all()


@pytest.mark.parametrize("core", LINEAR)
def test_a_core_has_no_weight_per_entity(core: str) -> None:
    shapes = [tuple(p.shape) for p in make_mixer(core, 8, 2, n_points=3, dropout=0.0).parameters()]
    assert all(size in (3, 8, 16, 24) for shape in shapes for size in shape)


def test_latents_differ_from_induced_points_by_their_exchange() -> None:
    induced = make_mixer("induced", 8, 2, n_points=3, dropout=0.0)
    latent = make_mixer("latent", 8, 2, n_points=3, dropout=0.0)
    assert isinstance(induced, InducedAttention)
    assert set(latent.state_dict()) - set(induced.state_dict()) == {
        f"exchange{out}.{kind}" for out in ("", "_out") for kind in ("weight", "bias")
    }


@pytest.mark.parametrize("attention", CPU_STRATEGIES)
def test_without_an_ego_the_answer_is_the_mean_of_the_values(attention: str) -> None:
    encoder = make_encoder(SCHEMA, core="ego", ego="me", n_layers=1, attention=attention)
    rng = np.random.default_rng(0)
    observation = {
        "me": rng.normal(size=(1, 1, 2)),
        "me_mask": np.zeros((1, 1)),
        "it": rng.normal(size=(1, 5, 2)),
        "it_mask": np.array([[1, 0, 1, 1, 0]]),
    }
    told: list[torch.Tensor] = []
    mixer = encoder.stack.layers[0].mixer
    assert isinstance(mixer, EgoAttention)
    mixer.kv.register_forward_hook(lambda m, i, o: told.append(o.detach()))
    mixer.out.register_forward_hook(lambda m, i, o: told.append(i[0].detach()))
    encoder(observation)
    values, answer = told[0].reshape(-1, 24)[:, 12:], told[1]
    if attention == "dense":
        values = values[[1, 3, 4]]  # the slots after the ego's
    torch.testing.assert_close(answer.reshape(12), values[:3].mean(0))


def test_the_ego_core_refuses_to_guess() -> None:
    with pytest.raises(ValueError, match=r"ego must name .* one of \['me', 'it'\], got None"):
        EntityEncoder(SCHEMA, core="ego")
    mixer = make_mixer("ego", 8, 2, n_points=3, dropout=0.0)
    layout = dense_layout(torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="core='ego' must have an ego group, got none; pass ego="):
        mixer(torch.zeros(1, 3, 8), layout, Context())
