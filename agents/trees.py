"""Actions and observations are tensors, or dicts and tuples of them: functions over all leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

__all__ = ["Tree", "allocate", "flatten_time", "leaves", "map_tree", "select", "to_numpy", "write"]

Tree = Any  # a Tensor, a dict[str, Tree] or a tuple[Tree, ...]


def map_tree(function: Callable[..., Any], tree: Tree, *more: Tree) -> Tree:
    """Apply a function to every leaf of trees of one structure."""
    if isinstance(tree, Mapping):
        return {key: map_tree(function, tree[key], *(t[key] for t in more)) for key in tree}
    if isinstance(tree, (tuple, list)):
        return tuple(map_tree(function, *parts) for parts in zip(tree, *more, strict=True))
    return function(tree, *more)


def leaves(tree: Tree) -> list[Tensor]:
    """Return the tensors of a tree, in a fixed order."""
    found: list[Tensor] = []
    map_tree(found.append, tree)
    return found


def allocate(example: Tree, *lead: int) -> Tree:
    """Return zeros shaped like the example but for its leading dimensions: (*lead, ...).

    Args:
        example: Leaves (n, ...).
        lead: What stands in the place of n.
    """
    return map_tree(lambda x: x.new_zeros((*lead, *x.shape[1:])), example)


def write(storage: Tree, index: Any, tree: Tree) -> None:
    """Copy a tree into the place `index` of storage made by `allocate`."""
    map_tree(lambda where, x: where[index].copy_(x), storage, tree)


def select(tree: Tree, rows: Tensor) -> Tree:
    """Take rows of every leaf: `rows` holds indices into the leading dimension."""
    return map_tree(lambda x: x.index_select(0, rows), tree)


def flatten_time(tree: Tree) -> Tree:
    """Join the two leading dimensions of every leaf: (T, E, ...) to (T * E, ...)."""
    return map_tree(lambda x: x.flatten(0, 1), tree)


def to_numpy(tree: Tree) -> Tree:
    """Bring every leaf to the CPU as an array."""
    return map_tree(lambda x: x.cpu().numpy(), tree)
