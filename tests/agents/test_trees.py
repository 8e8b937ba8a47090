import torch

from entity_encoder.agents.trees import (
    allocate,
    flatten_time,
    leaves,
    map_tree,
    select,
    to_numpy,
    write,
)

TREE = {
    "move": torch.arange(6.0).view(3, 2),
    "pick": (torch.tensor([4, 5, 6]), {"x": torch.ones(3, 1)}),
}


def test_map_keeps_the_structure() -> None:
    doubled = map_tree(lambda a, b: a + b, TREE, TREE)
    assert doubled["pick"][0].tolist() == [8, 10, 12]
    assert isinstance(doubled["pick"], tuple)
    assert [leaf.shape for leaf in leaves(doubled)] == [(3, 2), (3,), (3, 1)]


def test_written_trees_are_copies_and_come_back_by_row() -> None:
    source = map_tree(torch.clone, TREE)
    storage = allocate(source, 5, 3)
    write(storage, 2, source)
    source["move"].zero_()  # an environment that reuses its arrays
    flat = flatten_time(storage)
    assert flat["move"].shape == (15, 2)
    picked = select(flat, torch.tensor([2 * 3 + 1]))
    assert picked["move"].tolist() == [[2.0, 3.0]]
    assert picked["pick"][0].tolist() == [5]


def test_arrays_share_the_numbers() -> None:
    assert to_numpy(TREE)["pick"][0].tolist() == [4, 5, 6]
