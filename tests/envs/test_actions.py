import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from entity_encoder.envs.actions import ActionReader, LegalSampler, legal_actions, mask_shape
from entity_encoder.spaces import PerEntity, SelectEntity, space_to_dict

CPU = torch.device("cpu")
NOTHING: tuple[None, str] = (None, "")


def b(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.bool)


@pytest.mark.parametrize(
    "actions", [[2, 0, 1], np.array([2, 0, 1], np.int32), torch.tensor([2, 0, 1])]
)
def test_lists_arrays_and_tensors_are_read_alike(actions: object) -> None:
    read = ActionReader(spaces.Discrete(3), 3, CPU).read(actions, None, NOTHING, None)
    assert read.dtype == torch.int64
    assert read.tolist() == [2, 0, 1]


@pytest.mark.parametrize("value", [-1, 3])
def test_action_outside_the_space_names_env_and_value(value: int) -> None:
    reader = ActionReader(spaces.Discrete(3), 3, CPU)
    with pytest.raises(ValueError, match=f"action must be in 0, ..., 2, got {value} in env 1"):
        reader.read([0, value, 1], None, NOTHING, None)


def test_action_of_a_waiting_environment_is_ignored() -> None:
    reader = ActionReader(spaces.Discrete(3), 3, CPU)
    legal = (b([1, 1, 1], [0, 0, 0], [1, 1, 1]), "action_mask")
    assert reader.read([2, 99, 1], b(0, 1, 0), legal, None).tolist() == [2, 0, 1]


def test_different_sizes_are_checked_one_by_one() -> None:
    reader = ActionReader(spaces.MultiDiscrete([2, 5]), 2, CPU)
    assert reader.read([[1, 4], [0, 0]], None, NOTHING, None).tolist() == [[1, 4], [0, 0]]
    with pytest.raises(ValueError, match=r"action must be in 0, ..., 1, got 3 in env 1, slot 0"):
        reader.read([[1, 4], [3, 0]], None, NOTHING, None)


def test_absent_entity_cannot_be_selected() -> None:
    reader = ActionReader(SelectEntity("cherry", 4), 2, CPU)
    legal = (b([1, 1, 1, 1], [1, 0, 0, 1]), "cherry_mask")
    message = r"must point at a present cherry, got 2 in env 1; legal by 'cherry_mask': \[0, 3\]"
    with pytest.raises(ValueError, match=message):
        reader.read([2, 2], None, legal, None)


def test_illegal_action_names_the_legal_ones() -> None:
    reader = ActionReader(spaces.Discrete(3), 2, CPU)
    legal = (b([1, 1, 1], [0, 1, 1]), "action_mask")
    message = r"action must be legal, got 0 in env 1; legal by 'action_mask': \[1, 2\]"
    with pytest.raises(ValueError, match=message):
        reader.read([0, 0], None, legal, None)


def test_choice_of_an_absent_actor_is_ignored() -> None:
    reader = ActionReader(PerEntity("ally", 3, 2), 2, CPU)
    present = b([1, 0, 1], [1, 1, 1])
    legal = (torch.ones(2, 3, 2, dtype=torch.bool), "action_mask")
    legal[0][0, 1] = False  # the absent one has no legal choice
    read = reader.read([[1, 77, 1], [0, 1, 0]], None, legal, present)
    assert read.tolist() == [[1, 0, 1], [0, 1, 0]]
    legal[0][1, 2, 0] = False
    with pytest.raises(ValueError, match=r"must be legal, got 0 in env 1, slot 2; .*: \[1\]"):
        reader.read([[1, 77, 1], [0, 1, 0]], None, legal, present)


def test_continuous_actions_keep_their_value_and_their_bounds() -> None:
    reader = ActionReader(
        spaces.Box(np.array([-1, 0], np.float32), np.array([1, 3], np.float32)), 2, CPU
    )
    read = reader.read(np.array([[0.5, 3.0], [-1.0, 0.0]]), None, NOTHING, None)
    assert read.dtype == torch.float32
    assert read.tolist() == [[0.5, 3.0], [-1.0, 0.0]]
    for bad in (3.5, float("nan")):
        message = rf"action must lie in \[0, 3\], got {bad:g} at index 1 in env 0"
        with pytest.raises(ValueError, match=message):
            reader.read([[0.0, bad], [0.0, 0.0]], None, NOTHING, None)


def test_wrong_shape_and_fractions_are_refused() -> None:
    reader = ActionReader(spaces.Discrete(3), 2, CPU)
    with pytest.raises(ValueError, match=r"actions must have shape \(2,\), got \(3,\)"):
        reader.read([0, 1, 2], None, NOTHING, None)
    with pytest.raises(ValueError, match=r"actions must be whole numbers, got dtype torch.float32"):
        reader.read([0.0, 1.5], None, NOTHING, None)


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=1), spaces.MultiBinary(3)])
def test_other_action_spaces_are_refused(space: spaces.Space) -> None:
    with pytest.raises(ValueError, match="action_space must be Discrete from 0"):
        ActionReader(space, 2, CPU)


def test_off_the_cpu_values_are_clamped_instead_of_checked() -> None:
    reader = ActionReader(spaces.Discrete(3), 3, CPU)
    reader._device = torch.device("meta")  # what a GPU would do, on values that can be read
    assert reader._clamped(torch.tensor([-5, 1, 9])).tolist() == [0, 1, 2]
    box = ActionReader(spaces.Box(-1, 1, (1,)), 3, CPU)
    assert box._clamped(torch.tensor([[-5.0], [0.5], [9.0]])).tolist() == [[-1.0], [0.5], [1.0]]


def test_legal_actions_come_from_the_action_mask_or_the_presence() -> None:
    mask, there = torch.ones(2, 3), torch.ones(2, 4)
    select = SelectEntity("cherry", 4)
    observation = {"cherry_mask": there, "action_mask": mask}
    assert legal_actions(select, observation) == (mask, "action_mask")
    assert legal_actions(select, {"cherry_mask": there}) == (there, "cherry_mask")
    assert legal_actions(spaces.Discrete(3), {"cherry_mask": there}) == (None, "")


def test_mask_has_one_axis_for_discrete_and_two_for_several() -> None:
    assert mask_shape(spaces.Discrete(5)) == (5,)
    assert mask_shape(PerEntity("ally", 3, 2)) == (3, 2)
    with pytest.raises(ValueError, match="action_mask must belong to"):
        mask_shape(spaces.MultiDiscrete([2, 3]))


@pytest.mark.parametrize("batched", [False, True])
def test_sampler_draws_every_legal_action_and_no_other(batched: bool) -> None:
    space = SelectEntity("cherry", 4)
    wide = batch_space(space, 2) if batched else space
    sampler = LegalSampler(wide)
    wide.seed(3)
    legal = b([1, 0, 1, 1], [0, 1, 0, 0])
    sampler.legal = legal if batched else legal[0]
    drawn = np.stack([wide.sample() for _ in range(60)])
    assert set(np.unique(drawn[:, 0] if batched else drawn)) == {0, 2, 3}
    if batched:
        assert set(drawn[:, 1]) == {1}
    assert all(wide.contains(row) for row in drawn)


def test_sampler_leaves_type_masks_and_seeds_to_the_space() -> None:
    space = SelectEntity("cherry", 4)
    sampler = LegalSampler(space)
    sampler.legal = b(1, 0, 0, 0)
    assert type(space) is SelectEntity
    assert space_to_dict(space) == space_to_dict(SelectEntity("cherry", 4))
    assert space.sample(mask=np.array([0, 0, 1, 0], np.int8)) == 2
    assert space.sample(probability=np.array([0.0, 1.0, 0.0, 0.0])) == 1
    sampler.legal = None
    space.seed(1)
    plain = SelectEntity("cherry", 4, seed=1)
    assert [space.sample() for _ in range(9)] == [plain.sample() for _ in range(9)]


def test_sampler_returns_0_where_nothing_is_legal() -> None:
    space = PerEntity("ally", 2, 3)
    sampler = LegalSampler(space)
    sampler.legal = b([0, 0, 0], [0, 0, 1])
    assert space.sample().tolist() == [0, 2]
