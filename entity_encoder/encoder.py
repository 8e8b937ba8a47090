"""The backbone: an observation of entities in, an `EntityEncoding` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from entity_encoder.attention import explain_strategy
from entity_encoder.columns import column_index
from entity_encoder.counting import SetCounts
from entity_encoder.embedding import GroupEmbedding
from entity_encoder.encoding import EntityEncoding
from entity_encoder.errors import choose, require_at_least
from entity_encoder.layout import DenseLayout, Layout, PackedLayout
from entity_encoder.linear import RowLinear
from entity_encoder.normalisation import RunningNorm
from entity_encoder.observation import EntityTensors, read_observation
from entity_encoder.pinning import is_capturing
from entity_encoder.pooling import SetPooling
from entity_encoder.positions import (
    RelativeBias,
    Rotary,
    apply_frame,
    check_single_ego,
    position_rows,
)
from entity_encoder.rows import embed_rows, join_maps, row_flags
from entity_encoder.schema import EntitySchema
from entity_encoder.transformer import (
    Context,
    TransformerStack,
    choose_strategy,
    compute_dtype,
    make_activation,
    plan,
)

__all__ = ["EntityEncoder"]


class EntityEncoder(nn.Module):
    """Encode sets of entities of several kinds with a masked transformer.

    Padding, its content and its amount, cannot influence any result or gradient; the order of
    entities does not matter; any mask gives finite values, an empty set a learned vector.

    Args:
        space: Observation space (`gymnasium.spaces.Dict`) or the `EntitySchema` read from one.
        d_model: Width D of an encoded entity.
        n_heads: Heads per layer.
        n_layers: Number of layers.
        d_ff: Hidden width of the MLPs; default 2 * d_model.
        norm: "pre" (true pre-norm and a final norm, stable when deep) or "post".
        activation: relu, gelu, silu, tanh, elu or leaky_relu.
        dropout: Probability of dropping while training; keep 0 for PPO, where rollout and update
            must compute the same function.
        pooling: mean, max, sum, attention (learned queries), class (a class token) or ego.
        n_queries: Learned queries of pooling="attention".
        core: How entities interact: attention, or, linear in their number: induced, latent, ego,
            pool.
        n_points: Inducing points or latents of those cores.
        ego: Group of the ego entity for pooling="ego" and core="ego"; default the frame's.
        count_feature: Whether the encoder is told how many entities of each group there are, up to
            32. A mean cannot tell one entity from two equal ones.
        position_encoding: none, rotary or bias: relative positions in attention, for groups that
            declare position columns. auto: rotary where the schema declares a grid.
        position_scale: Length that counts as 1 for `position_encoding`, in the environment's units;
            None: a step of the schema's grid, or 1.
        normalise: Whether features go through running normalisation, see `update_statistics`.
        attention: auto, groups, fast, padded, varlen or dense; see `explain`.
        chunk_rows: Entities per chunk on the CPU, so that activations stay in its caches.
        check: Whether forward looks at values (masks 0 or 1, present entities finite). None: on
            the CPU only, elsewhere it would wait for the device.

    Raises:
        ValueError: For a space that cannot be read, sizes that do not fit, unknown names.

    Example:
        >>> space = spaces.Dict(
        ...     ship=spaces.Box(-1, 1, (5, 3)), ship_mask=spaces.MultiBinary(5)
        ... )
        >>> encoding = EntityEncoder(space, d_model=32)(space.sample())
        >>> encoding.pooled.shape, encoding.entities.shape
        (torch.Size([32]), torch.Size([5, 32]))
    """

    def __init__(
        self,
        space: spaces.Space[Any] | EntitySchema,
        *,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int | None = None,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        pooling: str = "mean",
        n_queries: int = 1,
        core: str = "attention",
        n_points: int = 16,
        ego: str | None = None,
        count_feature: bool = False,
        position_encoding: str = "auto",
        position_scale: float | None = None,
        normalise: bool = True,
        attention: str = "auto",
        chunk_rows: int = 4096,
        check: bool | None = None,
    ) -> None:
        super().__init__()
        require_at_least(1, chunk_rows=chunk_rows)
        self.schema = space if isinstance(space, EntitySchema) else EntitySchema.from_space(space)
        self.d_model = d_model
        self.attention = choose_strategy(attention)
        self.chunk_rows = chunk_rows
        self.check = check
        self.stack = TransformerStack(
            d_model,
            n_heads=n_heads,
            n_layers=n_layers,
            d_ff=d_ff,
            norm=norm,
            activation=activation,
            dropout=dropout,
            core=core,
            n_points=n_points,
        )
        groups = self.schema.groups
        self.ego = self._find_ego(ego, needed=pooling == "ego" or core == "ego")
        self.normalise = normalise
        self.group_norms = nn.ModuleList(
            RunningNorm(len(group.features)) for group in groups if normalise
        )
        self.global_norms = nn.ModuleList(
            RunningNorm(item.size) for item in self.schema.globals if normalise
        )
        self.embeddings = nn.ModuleList(GroupEmbedding(group, d_model) for group in groups)
        self.embed_activation = make_activation(activation)
        self.counts = SetCounts(len(groups)) if count_feature else None
        width = sum(item.size for item in self.schema.globals)
        width += self.counts.width if self.counts is not None else 0
        self.embed_globals = RowLinear(width, d_model) if width else None
        if self.counts is not None and self.embed_globals is not None:
            self.counts.initialise(self.embed_globals)
        self.pooling = SetPooling(pooling, d_model, n_heads=n_heads, n_queries=n_queries)
        self.empty = nn.Parameter(torch.randn(self.pooling.output_dim) * 0.1)
        self.class_token = nn.Parameter(torch.randn(d_model) * 0.1) if pooling == "class" else None
        self._make_positions(position_encoding, position_scale, n_heads, n_layers, core)

    def _find_ego(self, ego: str | None, *, needed: bool) -> int | None:
        if ego is None and self.schema.frame is not None:
            ego = self.schema.frame.group
        if ego is None:
            if needed:
                names = [group.name for group in self.schema.groups]
                raise ValueError(
                    f"ego must name the group of the ego entity, one of {names}, got None"
                )
            return None
        return self.schema.groups.index(self.schema.group(ego))

    def _make_positions(
        self, encoding: str, scale: float | None, n_heads: int, n_layers: int, core: str
    ) -> None:
        choose("position_encoding", encoding, ("auto", "none", "rotary", "bias"))
        if scale is None:
            scale = 1.0 if self.schema.grid is None else self.schema.grid
        self.position_scale = scale
        self.rotary: Rotary | None = None
        self.relative_bias: RelativeBias | None = None
        if scale <= 0:
            raise ValueError(f"position_scale must be positive, got {scale}")
        dims = max(len(group.positions) for group in self.schema.groups)
        if encoding == "auto":  # what suits the schema, if it can be had
            fits = core == "attention" and Rotary.fits(dims, self.d_model // n_heads)
            encoding = "rotary" if self.schema.grid is not None and fits else "none"
        if encoding == "none":
            return
        if not dims:
            raise ValueError(
                f"position_encoding={encoding!r} needs position columns, got none; declare them "
                "with EntitySchema.from_space(space, positions={group: ('x', 'y')})"
            )
        if core != "attention":
            raise ValueError(
                f"position_encoding={encoding!r} must go with core='attention', got core={core!r}"
            )
        if encoding == "rotary":
            self.rotary = Rotary(dims, self.d_model // n_heads)
        elif n_layers:
            self.relative_bias = RelativeBias(dims, n_heads, n_layers)

    @property
    def output_dim(self) -> int:
        """Width of `pooled`."""
        return self.pooling.output_dim + (0 if self.embed_globals is None else self.d_model)

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the weights."""
        return self.empty.dtype

    def read(self, observation: Mapping[str, Any], *, check: bool | None = None) -> EntityTensors:
        """Read an observation into checked tensors on this module's device."""
        return read_observation(
            self.schema,
            observation,
            check=False if is_capturing() else check,
            device=self.empty.device,
            dtype=self.dtype,
        )

    def _express(self, entities: EntityTensors) -> list[Tensor]:
        """Features without the content of absent slots, in the ego frame: (B, slots_g, F_g)."""
        clean = [
            torch.where(mask[..., None], x, 0.0)
            for x, mask in zip(entities.features, entities.masks, strict=True)
        ]
        return apply_frame(self.schema, entities, clean)

    @torch.no_grad()
    def update_statistics(
        self, observation: Mapping[str, Any], valid: Tensor | None = None
    ) -> None:
        """Let the running normalisation see new observations; forward never does.

        Args:
            observation: Like forward's.
            valid: (...) bool over the leading dimensions: which observations count. None: all.

        Raises:
            ValueError: When `valid` has other dimensions, or like forward.
        """
        if not self.normalise:
            return
        entities = self.read(observation, check=self.check)
        if valid is not None:
            keep = torch.as_tensor(valid, device=self.empty.device)
            if tuple(keep.shape) != entities.lead:
                raise ValueError(f"valid must have shape {entities.lead}, got {tuple(keep.shape)}")
            keep = keep.reshape(-1, 1).bool()
            entities.masks = [mask & keep for mask in entities.masks]
        features = self._express(entities)
        for norm, x, mask in zip(self.group_norms, features, entities.masks, strict=True):
            assert isinstance(norm, RunningNorm)
            norm.update(x, mask)
        for norm, vector in zip(self.global_norms, entities.globals, strict=True):
            assert isinstance(norm, RunningNorm)
            norm.update(vector, None if valid is None else keep[:, 0])

    def forward(
        self,
        observation: Mapping[str, Any],
        *,
        critic: bool = False,
        return_attention: bool = False,
    ) -> EntityEncoding:
        """Encode an observation.

        Args:
            observation: Dict of tensors or NumPy arrays with any leading dimensions; further keys
                are ignored. Masks: True or 1 = an entity is there, of any dtype.
            critic: Whether critic-only groups and features take part.
            return_attention: Whether to return attention maps; the other outputs stay bit-equal.

        Raises:
            ValueError: Naming environment, key and slot of what does not fit.
        """
        entities = self.read(observation, check=self.check)
        self._hide_critic_only(entities, critic)
        mask = entities.mask  # (B, N)
        if self.ego is not None and self.schema.frame is None:
            check_single_ego(entities.masks[self.ego], self.schema.groups[self.ego].name)
        raw = self._express(entities)
        features = self._normalise(raw)
        context = self._embed_context(entities)  # (B, D) or None
        positions = self._positions(raw)  # (B, N, P + 1) or None
        layouts = self._plan(mask, features)
        ego = None if self.ego is None else entities.slices[self.ego]
        rows, pooled, maps = [], [], []
        for layout in layouts:
            x = embed_rows(self.embeddings, features, layout, entities.slices, self.class_token)
            if context is not None:
                x = x + layout.per_row(context)
            x = self.embed_activation(x)
            flags = row_flags(layout, mask, ego, class_token=self.class_token is not None)
            shared = self._context(positions, layout, flags, return_attention)
            x = self.stack(x, layout, shared)
            rows.append(x)
            pooled.append(self.pooling(x, layout, flags))
            maps.append(shared.maps)
        out = self._gather(pooled, layouts, mask)
        if context is not None:
            out = torch.cat([out, self.embed_activation(context)], dim=1)
        names = [group.name for group in self.schema.groups]
        lead = entities.lead
        return EntityEncoding(
            out.reshape(*lead, out.shape[1]),
            mask.reshape(*lead, mask.shape[1]),
            layouts=layouts,
            rows=rows,
            slices=dict(zip(names, entities.slices, strict=True)),
            attention=join_maps(maps, lead) if return_attention else None,
        )

    def _hide_critic_only(self, entities: EntityTensors, critic: bool) -> None:
        if critic or not self.schema.has_critic_only:
            return
        for i, group in enumerate(self.schema.groups):
            if group.critic_only:
                entities.masks[i] = torch.zeros_like(entities.masks[i])
        for i, item in enumerate(self.schema.globals):
            if item.critic_only:
                entities.globals[i] = torch.zeros_like(entities.globals[i])

    def _normalise(self, features: list[Tensor]) -> list[Tensor]:
        if not self.normalise:
            return features
        out = []
        for group, norm, x in zip(self.schema.groups, self.group_norms, features, strict=True):
            normalised = norm(x)
            if group.categories:  # ids are looked up, not scaled
                names = [name for name, _ in group.categories]
                index = column_index(group.columns(names), x)
                normalised = normalised.index_copy(-1, index, x.index_select(-1, index))
            out.append(normalised)
        return out

    def _embed_context(self, entities: EntityTensors) -> Tensor | None:
        """Embed global features and counts: (B, D)."""
        if self.embed_globals is None:
            return None
        parts = list(entities.globals)
        if self.normalise:
            parts = [norm(x) for norm, x in zip(self.global_norms, parts, strict=True)]
        if self.counts is not None:
            parts.append(self.counts(entities.masks, self.dtype))
        return self.embed_globals(torch.cat(parts, dim=1))

    def _positions(self, features: list[Tensor]) -> Tensor | None:
        if self.rotary is None and self.relative_bias is None:
            return None
        positions = position_rows(self.schema, features, self.position_scale)
        if self.class_token is not None:  # the class token has no place
            positions = nn.functional.pad(positions, (0, 0, 0, 1))
        return positions

    def _plan(self, mask: Tensor, features: list[Tensor]) -> list[Layout]:
        if self.class_token is not None:
            mask = nn.functional.pad(mask, (0, 1), value=True)
        return plan(mask, self.attention, compute_dtype(features[0]), self.chunk_rows)

    def _context(
        self, positions: Tensor | None, layout: Layout, flags: Tensor | None, maps: bool
    ) -> Context:
        context = Context(ego=flags, maps=[] if maps else None)
        if positions is not None:
            rows = layout.pick(positions)
            if self.rotary is not None:
                context.rotary, context.angles = self.rotary, self.rotary.angles(rows)
            elif self.relative_bias is not None:
                context = Context(
                    ego=flags, maps=context.maps, biases=self.relative_bias(rows, layout)
                )
        return context

    def _gather(self, pooled: list[Tensor], layouts: list[Layout], mask: Tensor) -> Tensor:
        """Put the pooled vectors of all chunks in the order of the batch: (B, output)."""
        first = layouts[0]
        if isinstance(first, DenseLayout):
            return torch.where(first.mask.any(1, keepdim=True), pooled[0], self.empty)
        sets = torch.cat([layout.sets for layout in layouts if isinstance(layout, PackedLayout)])
        joined = torch.cat(pooled)
        empty = self.empty.to(joined.dtype).expand(mask.shape[0], -1)
        return empty.index_copy(0, sets, joined)

    def explain(self, observation: Mapping[str, Any]) -> str:
        """Say which path an observation takes through the encoder, and why."""
        entities = self.read(observation, check=self.check)
        mask = entities.mask
        dtype = compute_dtype(entities.features[0])
        strategy, reason = explain_strategy(
            self.attention, device=mask.device, dtype=dtype, capturing=False
        )
        present, slots = int(mask.sum()), mask.numel()
        chunks = len(self._plan(mask, entities.features))
        return (
            f"attention {strategy!r}: {reason}. {mask.shape[0]} sets, {present} entities in "
            f"{slots} slots ({100 * present / max(slots, 1):.0f} % filled), {chunks} chunk(s) of "
            f"at most {self.chunk_rows} rows."
        )
