import pytest
import torch
from torch import nn

from entity_encoder.agents.memory import Memory


def made(width: int = 5, size: int = 3) -> Memory:
    torch.manual_seed(0)
    return Memory(width, size)


def test_cell_equals_torchs_gru() -> None:
    memory = made()
    reference = nn.GRUCell(5, 3)
    with torch.no_grad():
        # torch orders reset, update, new as we do, and computes (1 - z) n + z h
        reference.weight_ih.copy_(memory.gates_input.weight)
        reference.weight_hh.copy_(memory.gates_state.weight)
        reference.bias_ih.copy_(memory.gates_input.bias)
        reference.bias_hh.copy_(memory.gates_state.bias)
    x, h = torch.randn(7, 5), torch.randn(7, 3)
    _, state = memory(x, h, None)
    assert torch.allclose(state, reference(x, h), atol=1e-6)


def test_a_sequence_equals_its_steps_bit_for_bit() -> None:
    memory = made()
    x = torch.randn(6, 4, 5)
    begins = torch.rand(6, 4, generator=torch.Generator().manual_seed(2)) < 0.3
    start = torch.randn(4, 3)
    outputs, last = memory(x, start, begins)
    h = start
    for t in range(6):
        out, h = memory(x[t], h, begins[t])
        assert torch.equal(out, outputs[t])
    assert torch.equal(h, last)
    some, _ = memory(x[:, [2]], start[[2]], begins[:, [2]])
    assert torch.equal(some, outputs[:, [2]])  # whoever else is in the batch


def test_nothing_is_remembered_over_the_beginning_of_an_episode() -> None:
    memory = made()
    x, begins = torch.randn(3, 2, 5), torch.zeros(3, 2, dtype=torch.bool)
    begins[1, 0] = True
    outputs, _ = memory(x, torch.zeros(2, 3), begins)
    changed = x.clone()
    changed[0] += 10
    others, _ = memory(changed, torch.full((2, 3), 5.0), begins)
    assert torch.equal(outputs[1:, 0], others[1:, 0])
    assert not torch.allclose(outputs[1:, 1], others[1:, 1])


def test_memory_starts_empty() -> None:
    memory = made()
    x = torch.randn(4, 5)
    explicit, _ = memory(x, memory.initial(4), None)
    assert torch.equal(memory(x, None, None)[0], explicit)
    assert memory.initial(4).shape == (4, 3)


def test_gradients_reach_the_past() -> None:
    memory = made()
    x = torch.randn(3, 2, 5, requires_grad=True)
    memory(x, None, None)[0][-1].sum().backward()
    assert x.grad is not None
    assert float(x.grad[0].abs().sum()) > 0
    assert float(memory.project.weight.detach().norm()) == pytest.approx(0.1 * 3**0.5, rel=1e-5)
