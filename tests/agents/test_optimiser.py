import torch

from entity_encoder.agents.optimiser import make_optimiser, set_learning_rate, state_tensors
from tests.agents.test_update import small_policy, weights


def test_the_learning_rate_of_a_captured_optimiser_is_one_tensor() -> None:
    policy, plain = small_policy(), small_policy()
    optimisers = [
        make_optimiser(p.parameters(), learning_rate=0.1, epsilon=1e-5, captured=captured)
        for p, captured in ((policy, True), (plain, False))
    ]
    observation = {"ship": torch.ones(2, 5, 3), "ship_mask": torch.ones(2, 5)}
    place = optimisers[0].param_groups[0]["lr"]
    assert len(state_tensors(optimisers[0])) == 3 * len(list(policy.parameters()))
    for p, optimiser in zip((policy, plain), optimisers, strict=True):
        for rate in (0.01, 0.02):
            set_learning_rate(optimiser, rate)
            p(observation).value.sum().backward()
            optimiser.step()
    assert optimisers[0].param_groups[0]["lr"] is place
    assert torch.allclose(weights(policy), weights(plain), atol=1e-7)
