import numpy as np
import pytest
import torch

from entity_encoder.envs.streams import Seed, Streams

ALL = torch.ones(3, dtype=torch.bool)
SOME = torch.tensor([True, False, True])


def make(seed: Seed = 7) -> Streams:
    streams = Streams(3, torch.device("cpu"))
    streams.seed(seed, ALL, lambda n: np.arange(100, 100 + n))
    return streams


def never(n: int) -> np.ndarray:
    raise AssertionError("the system must be asked for seeds once, at the first reset")


def test_an_int_counts_up_and_a_list_is_taken_as_it_is() -> None:
    assert torch.equal(make(7).key, make([7, 8, 9]).key)
    assert torch.equal(make(np.int64(7)).key, make(7).key)  # type: ignore[arg-type]


def test_without_a_seed_the_first_reset_asks_the_system() -> None:
    assert torch.equal(make(None).key, make([100, 101, 102]).key)
    assert torch.equal(make([5, None, 6]).key, make([5, 101, 6]).key)


def test_without_a_seed_later_resets_continue_the_stream() -> None:
    streams = make(7)
    streams.seed(None, ALL, never)
    streams.seed(None, SOME, never)
    assert streams.episode.tolist() == [2, 1, 2]
    assert torch.equal(streams.key, make(7).key)


def test_seeds_reach_only_the_environments_that_begin() -> None:
    streams = make(7)
    streams.seed(None, ALL, never)
    streams.seed([30, 31, None], SOME, never)
    assert torch.equal(streams.key, make([30, 8, 9]).key)
    assert streams.episode.tolist() == [0, 1, 2]


def test_state_is_a_copy_and_restores_both() -> None:
    streams = make(7)
    saved = streams.get_state()
    streams.seed(40, ALL, never)
    streams.next_episode(SOME)
    streams.set_state(saved)
    assert torch.equal(streams.key, make(7).key)
    assert streams.episode.tolist() == [0, 0, 0]


def test_rows_are_selected_by_index() -> None:
    streams = make(7)
    two = streams.rng(4, torch.tensor([2, 0])).bits(5)
    every = streams.rng(4).bits(5)
    assert torch.equal(two, every[[2, 0]])


def test_wrong_number_of_seeds_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must have num_envs=3 entries, got 2"):
        make([1, 2])


def test_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must not be negative, got -4 for env 1"):
        make([1, -4, 2])
