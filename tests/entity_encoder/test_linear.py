"""Claims about linear layers over rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from entity_encoder.linear import RowLinear, row_mlp


@pytest.mark.parametrize("width", [1, 5, 33, 64])
@pytest.mark.parametrize("out", [1, 3, 8, 64])
def test_a_row_is_bitwise_independent_of_the_batch(width: int, out: int) -> None:
    torch.manual_seed(width * out)
    layer = RowLinear(width, out)
    x = torch.randn(203, width)
    y = layer(x)
    for rows in (1, 2, 3, 5, 7, 8, 9, 13, 64, 200):
        assert torch.equal(layer(x[:rows]), y[:rows])
        assert torch.equal(layer(x[203 - rows :]), y[203 - rows :])
    assert torch.equal(layer(x[0]), y[0])
    assert torch.equal(layer(x.view(7, 29, width)), y.view(7, 29, out))


def test_values_and_gradients_are_those_of_a_linear_layer() -> None:
    torch.manual_seed(1)
    layer, plain = RowLinear(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(layer.state_dict())
    grads = []
    for module in (layer, plain):
        x = torch.arange(35.0).view(7, 5).requires_grad_()
        module(x).square().sum().backward()
        grads.append([x.grad, module.weight.grad, module.bias.grad])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5), (5,), (1, 1, 5)])
def test_leading_dimensions_are_free(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape, requires_grad=True)
    y = RowLinear(5, 3)(x)
    assert y.shape == (*shape[:-1], 3)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == shape


def test_an_mlp_has_the_layers_and_the_gain_asked_for() -> None:
    torch.manual_seed(2)
    mlp = row_mlp(11, (7, 5), 3, gain=0.01)
    shapes = [tuple(p.shape) for p in mlp.parameters()]
    assert shapes == [(7, 11), (7,), (5, 7), (5,), (3, 5), (3,)]
    assert [type(m) for m in mlp] == [RowLinear, nn.ReLU, RowLinear, nn.ReLU, RowLinear]
    # Rows of an orthogonal matrix have length gain.
    last = mlp[-1]
    assert isinstance(last, RowLinear)
    torch.testing.assert_close(last.weight.norm(dim=1), torch.full((3,), 0.01))
    assert (last.bias == 0).all()
