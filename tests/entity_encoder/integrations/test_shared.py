import copy
import pickle

import numpy as np
import torch

from entity_encoder import EntityEncoder
from entity_encoder.integrations.shared import SharedPass
from tests.entity_encoder.integrations.toys import SMALL, Beacon, observe


def make() -> tuple[SharedPass, dict[str, np.ndarray]]:
    torch.manual_seed(3)
    return SharedPass(EntityEncoder(Beacon().observation_space, **SMALL)), observe(4)


def test_arrays_share_a_pass_only_while_learning() -> None:
    """A collector writes the next observation into the same arrays."""
    shared, observation = make()
    assert shared(observation, observation) is shared(observation, observation)
    with torch.no_grad():
        first = shared(observation, observation)
        observation["beacon"][:] = 0.5
        second = shared(observation, observation)
    assert not torch.equal(first.pooled, second.pooled)


def test_equal_content_in_another_object_is_encoded_again() -> None:
    shared, observation = make()
    tensors = {key: torch.as_tensor(value) for key, value in observation.items()}
    assert shared(tensors, tensors) is shared(tensors, tensors)
    assert shared(dict(tensors), tensors) is not shared(tensors, tensors)


def test_tensors_that_count_no_writes_are_never_shared() -> None:
    shared, observation = make()
    with torch.inference_mode():
        tensors = {key: torch.as_tensor(value) for key, value in observation.items()}
        first = shared(tensors, tensors)
        tensors["beacon"].add_(1)
        assert not torch.equal(shared(tensors, tensors).pooled, first.pooled)


def test_actor_and_critic_share_only_what_both_may_see() -> None:
    shared, observation = make()
    actor, critic = shared(observation, observation), shared(observation, observation, critic=True)
    assert actor is not critic
    assert shared(observation, observation) is actor
    assert shared(observation, observation, critic=True) is critic


def test_copies_and_pickles_leave_the_encoding_behind() -> None:
    shared, observation = make()
    expected = shared(observation, observation).pooled
    for other in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert torch.equal(other(observation, observation).pooled, expected)


def test_gradients_of_both_losses_reach_the_encoder_through_one_pass() -> None:
    shared, observation = make()
    first, second = (shared(observation, observation).pooled.sum() for _ in range(2))
    (first + second).backward()
    twice = [weight.grad.clone() for weight in shared.parameters() if weight.grad is not None]
    shared.zero_grad()
    fresh, _ = make()
    (2 * fresh(observe(4), observe(4)).pooled.sum()).backward()
    expected = [weight.grad for weight in fresh.parameters() if weight.grad is not None]
    for got, want in zip(twice, expected, strict=True):
        torch.testing.assert_close(got, want)
