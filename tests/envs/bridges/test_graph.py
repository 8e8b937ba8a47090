from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import GraphInstance

from entity_encoder.envs.bridges.graph import GraphToEntities
from tests.envs.bridges.spaced import Spaced, check_wrapped

SPACE = spaces.Graph(spaces.Box(1, 99, (2,), np.float32), spaces.Discrete(3))


def graph(nodes: int, links: list[list[int]], kinds: list[int]) -> GraphInstance:
    """Node i is (10 i + 1, 10 i + 2)."""
    rows = (10 * np.arange(nodes)[:, None] + [1, 2]).astype(np.float32)
    return GraphInstance(rows, np.array(kinds), np.array(links, np.int32).reshape(-1, 2))


def test_edges_know_their_ends() -> None:
    instance = graph(3, [[2, 0], [1, 1]], [1, 2])
    env = GraphToEntities(Spaced(SPACE, [instance]), 4, 3)
    observation, _ = env.reset()
    assert observation["node"].tolist() == [[1, 2], [11, 12], [21, 22], [0, 0]]
    assert observation["node_mask"].tolist() == [1, 1, 1, 0]
    assert observation["edge"].tolist() == [
        [0, 1, 0, 21, 22, 1, 2],
        [0, 0, 1, 11, 12, 11, 12],
        [0] * 7,
    ]
    assert observation["edge_mask"].tolist() == [1, 1, 0]
    assert observation in env.observation_space


def test_nodes_alone_discrete_nodes_and_edges_without_features() -> None:
    alone = GraphToEntities(
        Spaced(SPACE, [graph(2, [[0, 1]], [0])] * 2), 3, positions={"node": ("f0", "f1")}
    )
    assert set(alone.reset()[0]) == {"node", "node_mask"}
    assert alone.step(0)[1:4] == (1.0, False, True)
    assert alone.entity_schema.group("node").positions == ("f0", "f1")
    kinds = spaces.Graph(spaces.Discrete(3), None)
    links = np.array([[1, 0]], np.int32)
    instance = GraphInstance(np.array([2, 0]), None, links)
    observation, _ = GraphToEntities(Spaced(kinds, [instance]), 2, 2).reset()
    assert observation["node"].tolist() == [[0, 0, 1], [1, 0, 0]]
    assert observation["edge"].tolist() == [[1, 0, 0, 0, 0, 1], [0] * 6]


def test_no_edges_at_all_are_an_empty_group() -> None:
    instance = GraphInstance(np.ones((1, 2), np.float32), None, None)
    observation, _ = GraphToEntities(Spaced(SPACE, [instance]), 2, 2).reset()
    assert observation["edge_mask"].tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:.*do not fit")
def test_an_edge_that_lost_an_end_is_left_out_and_counted() -> None:
    instance = graph(3, [[2, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 2, 0])
    env = GraphToEntities(Spaced(SPACE, [instance]), 2, 2)
    observation, _ = env.reset()
    assert observation["edge"][:, :3].tolist() == [[0, 1, 0], [0, 0, 1]]
    # One node; the edge from it; the third edge between nodes that stay.
    assert env.truncated_entities == 3
    last = GraphToEntities(Spaced(SPACE, [instance]), 2, priority="last")
    assert last.reset()[0]["node"].tolist() == [[11, 12], [21, 22]]
    assert last.truncated_entities == 1


@pytest.mark.filterwarnings("ignore:.*do not fit")
def test_random_graphs_pass_the_checker() -> None:
    SPACE.seed(3)
    samples: list[Any] = [SPACE.sample(num_nodes=n % 5 + 1, num_edges=n % 7) for n in range(99)]
    check_wrapped(GraphToEntities(Spaced(SPACE, samples), 4, 5))


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="observation_space must be a Graph, got Discrete"):
        GraphToEntities(Spaced(spaces.Discrete(2), []), 3)
