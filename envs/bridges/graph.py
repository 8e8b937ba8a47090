"""gymnasium's `Graph` spaces: nodes as entities, edges as entities that know their two ends."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import GraphInstance
from gymnasium.utils import RecordConstructorArgs

from entity_encoder.envs.bridges.capacity import Capacity, Priority
from entity_encoder.envs.bridges.sequence import element_box, flatten_elements
from entity_encoder.schema import EntitySchema

__all__ = ["GraphToEntities"]


class GraphToEntities(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Turn a graph into a group `node` and a group `edge`, each with a mask.

    A set has no indices, so an edge is told its ends by what they are: its row holds its own
    features, those of the node it comes from, then those of the node it goes to. Discrete nodes
    and edges become one-hot columns. Wrap before vectorising.

    **More nodes or edges than slots**: nodes stay by `priority`, edges in the order delivered;
    an edge that lost an end is left out as well. `truncated_entities` counts all of them.

    Args:
        env: An environment that observes a `spaces.Graph`.
        max_nodes: Slots of `node`.
        max_edges: Slots of `edge`; 0 leaves the edges out.
        priority: Which nodes stay: "first" or "last" delivered, or a function of the flattened
            nodes (n, F) that returns scores (n,), of which the highest stay.
        **schema: Passed to `EntitySchema.from_space`: `features`, `positions`, `frame`, ...

    Attributes:
        entity_schema: What the observation contains.

    Raises:
        ValueError: When the observation is no graph, or edges are asked for and have no slots.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        max_nodes: int,
        max_edges: int = 0,
        *,
        priority: Priority = "first",
        **schema: Any,
    ) -> None:
        RecordConstructorArgs.__init__(
            self, max_nodes=max_nodes, max_edges=max_edges, priority=priority, **schema
        )
        gymnasium.Wrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, spaces.Graph):
            raise ValueError(f"observation_space must be a Graph, got {space}")
        self.space = space
        self._nodes = Capacity("node", max_nodes, priority)
        self._edges = Capacity("edge", max_edges) if max_edges else None
        self._lost = 0
        node = element_box(space.node_space, max_nodes)
        parts: dict[str, spaces.Space[Any]] = {
            "node": node,
            "node_mask": spaces.MultiBinary(max_nodes),
        }
        if max_edges:
            ends = [np.tile(side[:1], (max_edges, 2)) for side in (node.low, node.high)]
            own: list[np.ndarray] = [np.zeros((max_edges, 0), np.float32)] * 2
            if space.edge_space is not None:
                box = element_box(space.edge_space, max_edges)
                own = [box.low, box.high]
            low, high = (np.concatenate(pair, axis=1) for pair in zip(own, ends, strict=True))
            parts |= {
                "edge": spaces.Box(low, high, dtype=np.float32),
                "edge_mask": spaces.MultiBinary(max_edges),
            }
        self.observation_space = spaces.Dict(parts)
        self.entity_schema = EntitySchema.from_space(self.observation_space, **schema)

    @property
    def truncated_entities(self) -> int:
        """Nodes and edges left out so far because there was no slot."""
        return self._nodes.truncated + self._lost + (self._edges.truncated if self._edges else 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode."""
        graph, info = self.env.reset(seed=seed, options=options)
        return self.observation(graph), info

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        graph, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(graph), reward, terminated, truncated, info

    def observation(self, graph: GraphInstance) -> dict[str, np.ndarray]:
        """Give nodes and edges their slots."""
        nodes = flatten_elements(self.space.node_space, graph.nodes)  # (n, F)
        stay = self._nodes.choose(nodes)
        rows = np.zeros((self._nodes.slots, nodes.shape[1]), np.float32)
        rows[: len(stay)] = nodes[stay]
        mask = (np.arange(len(rows)) < len(stay)).astype(np.int8)
        observation: dict[str, np.ndarray] = {"node": rows, "node_mask": mask}
        if self._edges is None:
            return observation
        edges = self._edge_rows(graph, nodes, stay)
        padded, edge_mask = self._edges.pad(edges)
        return observation | {"edge": padded, "edge_mask": edge_mask}

    def _edge_rows(self, graph: GraphInstance, nodes: np.ndarray, stay: np.ndarray) -> np.ndarray:
        """Return the edges between nodes that stay, (m, Fe + 2 F)."""
        links = graph.edge_links
        if links is None:
            links = np.zeros((0, 2), np.int64)
        kept = np.isin(links, stay).all(axis=1)
        self._lost += int((~kept).sum())
        ends = nodes[links].reshape(len(links), 2 * nodes.shape[1])  # from, to
        if self.space.edge_space is None:
            return ends[kept]
        given = graph.edges if graph.edges is not None else []
        return np.concatenate([flatten_elements(self.space.edge_space, given), ends], 1)[kept]
