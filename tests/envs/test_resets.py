import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from entity_encoder.envs.groups import Group
from entity_encoder.envs.resets import (
    fill_rows,
    merge_rows,
    read_autoreset_mode,
    read_reset_mask,
    shuffle_slots,
)
from entity_encoder.envs.rng import Rng, seeds_to_keys

CPU = torch.device("cpu")


def test_shuffling_moves_all_tensors_of_a_group_together() -> None:
    ids = torch.arange(5).repeat(301, 1)
    state = {"id": ids, "xy": torch.stack((ids, 10 * ids), 2), "other": ids.clone()}
    rng = Rng(seeds_to_keys(range(301)), torch.zeros(301, dtype=torch.int64), 0)
    groups = (Group("a", 5, state=("id", "xy")), Group("b", 1, state=("other",)), Group("c", 2))
    mixed = shuffle_slots(state, groups, rng)
    assert torch.equal(mixed["xy"][:, :, 0], mixed["id"])
    assert torch.equal(mixed["xy"][:, :, 1], 10 * mixed["id"])
    assert torch.equal(mixed["other"], ids)
    assert torch.equal(mixed["id"].sort(1).values, ids)
    # Every slot holds every number in a fifth of the rows: 60 of 301, standard deviation 7.
    for slot in range(5):
        assert (torch.bincount(mixed["id"][:, slot], minlength=5) - 60).abs().max() < 28


def rows(n: int, start: float) -> dict[str, torch.Tensor]:
    return {"a": torch.arange(n) + start, "b": (torch.arange(2 * n) + start).view(n, 2)}


def test_rows_are_replaced_alike_by_mask_and_by_index() -> None:
    running, fresh = rows(5, 0.0), rows(5, 100.0)
    mask = torch.tensor([True, False, False, True, False])
    index = mask.nonzero().squeeze(1)
    by_mask = merge_rows(running, fresh, mask)
    by_index = merge_rows(running, {k: v[index] for k, v in fresh.items()}, index)
    assert by_mask["a"].tolist() == [100, 1, 2, 103, 4]
    assert by_mask["b"][3].tolist() == [106, 107]
    for key in running:
        assert torch.equal(by_mask[key], by_index[key])
    assert torch.equal(running["a"], rows(5, 0.0)["a"])  # nothing was changed in place


def test_owned_tensors_are_changed_in_place_and_others_are_not() -> None:
    running = rows(3, 0.0)
    merged = merge_rows(running, rows(1, 50.0), torch.tensor([2]), {"a": running["a"]})
    assert merged["a"] is running["a"]
    assert merged["b"] is not running["b"]
    assert running["a"].tolist() == [0, 1, 50]


def test_tensors_that_share_memory_are_never_changed_in_place() -> None:
    base = torch.arange(6.0).view(3, 2)
    running = {"a": base, "b": base[:, :1]}
    fresh = {"a": torch.tensor([[8.0, 9.0]]), "b": torch.tensor([[7.0]])}
    merged = merge_rows(running, fresh, torch.tensor([1]), dict(running))
    assert merged["a"].tolist() == [[0, 1], [8, 9], [4, 5]]
    assert merged["b"].tolist() == [[0], [7], [4]]
    assert base.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_states_with_other_tensors_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"initial must make the tensors.*\['a'\] and \['a', 'b'\]"
    ):
        merge_rows(rows(2, 0.0), {"a": torch.zeros(2)}, torch.tensor([True, False]))


def test_rows_are_filled_alike_by_mask_and_by_index() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    assert fill_rows(x, torch.tensor([False, True, False]), 0.0).tolist() == [1, 0, 3]
    assert fill_rows(x, torch.tensor([1]), 0.0).tolist() == [1, 0, 3]
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "NextStep", AutoresetMode.NEXT_STEP])
def test_mode_is_known_by_name_and_value(mode: str | AutoresetMode) -> None:
    assert read_autoreset_mode(mode) is AutoresetMode.NEXT_STEP


def test_unknown_mode_is_refused_with_the_known_ones() -> None:
    known = r"autoreset_mode must be one of \['NEXT_STEP', 'SAME_STEP', 'DISABLED'\], got 'never'"
    with pytest.raises(ValueError, match=known):
        read_autoreset_mode("never")


def test_reset_mask_is_read_and_the_options_stay_as_they_are() -> None:
    options = {"reset_mask": np.array([True, False])}
    mask = read_reset_mask(options, 2, CPU)
    assert mask is not None
    assert mask.tolist() == [True, False]
    assert list(options) == ["reset_mask"]
    assert read_reset_mask(None, 2, CPU) is None
    assert read_reset_mask({}, 2, CPU) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_mask": np.ones(3, bool)}, r"must be bool of shape \(2,\), got .* of shape \(3,\)"),
        ({"reset_mask": np.ones(2)}, r"must be bool of shape \(2,\), got torch.float64"),
        ({"reset_mask": np.zeros(2, bool)}, "must be True somewhere, got all False"),
        ({"level": 3}, r"nothing but 'reset_mask', got \['level'\]"),
    ],
)
def test_bad_reset_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_reset_mask(options, 2, CPU)
