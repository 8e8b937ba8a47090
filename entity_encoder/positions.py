"""Where entities are: an ego-centric frame, rotary angles and a relative-position bias."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from entity_encoder.columns import column_index
from entity_encoder.layout import DenseLayout, Layout
from entity_encoder.observation import EntityTensors
from entity_encoder.pinning import is_capturing
from entity_encoder.schema import EgoFrame, EntityGroup, EntitySchema

__all__ = [
    "RelativeBias",
    "Rotary",
    "apply_frame",
    "check_single_ego",
    "position_rows",
]


def apply_frame(
    schema: EntitySchema, entities: EntityTensors, features: list[Tensor]
) -> list[Tensor]:
    """Express positions, directions and angles in the frame of the ego entity.

    Args:
        schema: Names the frame and the columns; without a frame nothing changes.
        entities: The observation; its masks say which ego entity is there.
        features: (B, slots_g, F_g) per group, absent rows finite.

    Returns:
        New feature tensors. A set without ego entity keeps its coordinates.

    Raises:
        ValueError: On the CPU, when a set has more than one present ego entity.
    """
    frame = schema.frame
    if frame is None:
        return features
    index = [group.name for group in schema.groups].index(frame.group)
    mask = entities.masks[index]
    check_single_ego(mask, frame.group)
    # At most one row is present, so a masked sum selects it.
    ego = torch.where(mask[..., None], features[index], 0.0).sum(1)  # (B, F)
    group = schema.groups[index]
    origin = ego.index_select(1, column_index(group.columns(group.positions), ego))  # (B, P)
    turn = _turn(frame, group, ego)  # (cos, sin), (B, 1) each, and the angle
    return [_express(g, x, origin, turn) for g, x in zip(schema.groups, features, strict=True)]


def check_single_ego(mask: Tensor, name: str) -> None:
    """Refuse more than one present ego entity per set.

    Args:
        mask: (B, slots) bool of the ego group.
        name: Name of the ego group.

    Raises:
        ValueError: Naming the environment; checked on the CPU only, where it costs no wait.
    """
    if mask.device.type != "cpu" or torch.compiler.is_compiling() or mask.shape[1] <= 1:
        return
    count = mask.sum(1)
    if bool((count > 1).any()):
        env = int((count > 1).nonzero()[0])
        raise ValueError(
            f"ego group {name!r} must have at most one present entity, got {int(count[env])} in "
            f"environment {env}; give the ego entity a group of its own"
        )


Turn = tuple[Tensor, Tensor, Tensor]


def _turn(frame: EgoFrame, group: EntityGroup, ego: Tensor) -> Turn | None:
    """Cosine, sine and angle of the ego's heading, (B, 1) each."""
    if not frame.heading:
        return None
    # In float64: the vector and the scalar kernels of sin, cos and atan2 round differently, so in
    # fp32 the place of a set in its batch would show. Exported graphs keep one type.
    exact = ego.dtype if is_capturing() or ego.device.type == "mps" else torch.float64
    heading = ego.index_select(1, column_index(group.columns(frame.heading), ego)).to(exact)
    if len(frame.heading) == 1:
        angle = heading
        cos, sin = torch.cos(angle), torch.sin(angle)
    else:
        length = heading.square().sum(1, keepdim=True).sqrt()
        known = length > 0
        unit = heading / torch.where(known, length, 1.0)
        cos, sin = torch.where(known, unit[:, :1], 1.0), unit[:, 1:]
        angle = torch.atan2(sin, cos)
    return cos.to(ego.dtype), sin.to(ego.dtype), angle.to(ego.dtype)


def _express(group: EntityGroup, x: Tensor, origin: Tensor, turn: Turn | None) -> Tensor:
    """Express one group's (B, slots, F) columns in the frame."""
    if group.positions:
        columns = column_index(group.columns(group.positions), x)
        moved = x.index_select(2, columns) - origin[:, None]
        x = x.index_copy(2, columns, _rotate(moved, turn))
    if turn is None:
        return x
    if group.directions:
        columns = column_index(group.columns(group.directions), x)
        pairs = x.index_select(2, columns).unflatten(2, (-1, 2))
        x = x.index_copy(2, columns, _rotate(pairs, turn).flatten(2))
    if group.angles:
        columns = column_index(group.columns(group.angles), x)
        angle = x.index_select(2, columns) - turn[2][:, None]
        full = 2 * math.pi
        x = x.index_copy(2, columns, angle - full * torch.round(angle / full))  # in [-pi, pi]
    return x


def _rotate(x: Tensor, turn: Turn | None) -> Tensor:
    """Rotate (B, ..., 2) clockwise by the ego's heading."""
    if turn is None:
        return x
    shape = (-1, *[1] * (x.dim() - 2))
    cos, sin = turn[0].view(shape), turn[1].view(shape)
    first, second = x[..., 0], x[..., 1]
    return torch.stack([cos * first + sin * second, cos * second - sin * first], dim=-1)


def position_rows(schema: EntitySchema, features: list[Tensor], scale: float) -> Tensor:
    """Collect coordinates of all groups: (B, N, P + 1).

    The last column is 1 where the group has positions and 0 where it has none.
    """
    size = max(len(group.positions) for group in schema.groups)
    parts = []
    for group, x in zip(schema.groups, features, strict=True):
        if group.positions:
            position = x.index_select(2, column_index(group.columns(group.positions), x)) / scale
            parts.append(torch.cat([position, torch.ones_like(position[..., :1])], dim=2))
        else:
            parts.append(x.new_zeros(*x.shape[:2], size + 1))
    return torch.cat(parts, dim=1)


class Rotary(nn.Module):
    """Rotate queries, keys and values by angles proportional to continuous coordinates.

    The score of two entities then depends on the difference of their coordinates (RoFormer,
    arXiv 2104.09864, on real-valued positions), without any N^2 tensor. What an entity reads is
    rotated back by its own angles, so it also learns where the others stand relative to itself, not
    only that they are there (GTA, arXiv 2310.10375). The distance from the origin counts as one
    more coordinate; in an ego-centric frame it is the distance to the ego.

    Args:
        dims: Number of coordinates P.
        head_dim: Width of a head; `head_dim // (2 * (P + 1))` frequencies per coordinate.
        low: Lowest frequency, radians per unit of position.
        high: Highest frequency; at 2 the next place on a grid is a third of a turn away, beyond pi
            different distances would look alike.
    """

    frequencies: Tensor

    def __init__(self, dims: int, head_dim: int, *, low: float = 0.5, high: float = 2.0) -> None:
        super().__init__()
        self.per_coordinate = head_dim // (2 * (dims + 1))
        if not self.fits(dims, head_dim):
            raise ValueError(
                f"rotary positions in {dims} coordinates and distance need head_dim >= "
                f"{2 * (dims + 1)}, got {head_dim}"
            )
        self.head_dim = head_dim
        steps = torch.linspace(0, 1, self.per_coordinate)
        self.register_buffer("frequencies", low * (high / low) ** steps, persistent=False)

    @staticmethod
    def fits(dims: int, head_dim: int) -> bool:
        """Whether a head is wide enough for every coordinate and the distance."""
        return head_dim >= 2 * (dims + 1)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for (..., P + 1) positions, (..., head_dim // 2) each."""
        coordinates, known = positions[..., :-1], positions[..., -1:]
        radius = coordinates.norm(dim=-1, keepdim=True)
        coordinates = torch.cat([coordinates, radius], dim=-1) * known
        angles = (coordinates[..., None] * self.frequencies.to(positions.dtype)).flatten(-2)
        rest = self.head_dim // 2 - angles.shape[-1]
        angles = nn.functional.pad(angles, (0, rest))
        return angles.cos(), angles.sin()

    def forward(self, qkv: Tensor, angles: tuple[Tensor, Tensor], n_heads: int) -> Tensor:
        """Rotate the queries, keys and values in (..., 3 * H * head_dim)."""
        return self._turn(qkv, 3 * n_heads, *angles)

    def undo(self, read: Tensor, angles: tuple[Tensor, Tensor], n_heads: int) -> Tensor:
        """Rotate back what each entity read, (..., H * head_dim), by its own angles."""
        return self._turn(read, n_heads, angles[0], -angles[1])

    def _turn(self, x: Tensor, parts: int, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.unflatten(-1, (parts, self.head_dim))
        half = self.head_dim // 2
        cos, sin = cos[..., None, :].to(x.dtype), sin[..., None, :].to(x.dtype)
        first, second = heads[..., :half], heads[..., half : 2 * half]
        turned = [first * cos - second * sin, second * cos + first * sin, heads[..., 2 * half :]]
        return torch.cat(turned, dim=-1).flatten(-2)


class RelativeBias(nn.Module):
    """A learned bias on attention scores from the offset between two entities.

    A small network reads (dx, dy, ..., distance); pairs where one has no position get 0. Costs
    N^2 numbers per set and head: use rotary positions for large sets.

    Args:
        dims: Number of coordinates P.
        n_heads: Heads per layer.
        n_layers: Layers; each has its own bias, all read in one pass.
        hidden: Width of the hidden layer.
    """

    def __init__(self, dims: int, n_heads: int, n_layers: int, *, hidden: int = 32) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.inner = nn.Linear(dims + 1, hidden)
        self.outer = nn.Linear(hidden, n_heads * n_layers)

    def forward(self, positions: Tensor, layout: Layout) -> list[list[Tensor] | Tensor]:
        """Return one bias per layer for (R, P + 1) or (B, N, P + 1) positions."""
        if isinstance(layout, DenseLayout):
            return list(self._bias(positions).chunk(self.n_layers, dim=1))
        runs = [self._bias(block).chunk(self.n_layers, dim=1) for block in layout.split(positions)]
        return [[run[layer] for run in runs] for layer in range(self.n_layers)]

    def _bias(self, positions: Tensor) -> Tensor:
        """(S, n, P + 1) -> (S, layers * H, n, n)."""
        coordinates, known = positions[..., :-1], positions[..., -1]
        offset = coordinates[:, None, :, :] - coordinates[:, :, None, :]
        # The root's slope is infinite at 0, where an entity meets itself.
        distance = (offset.square().sum(-1, keepdim=True) + 1e-12).sqrt()
        hidden = torch.relu(self.inner(torch.cat([offset, distance], dim=-1)))
        both = (known[:, :, None] * known[:, None, :])[..., None]
        return (self.outer(hidden) * both).permute(0, 3, 1, 2).contiguous()
