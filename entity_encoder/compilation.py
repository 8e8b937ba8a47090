"""Compile the dense path for a few widths, so that the number of entities never recompiles it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from entity_encoder.encoder import EntityEncoder
from entity_encoder.encoding import EntityEncoding
from entity_encoder.layout import dense_layout
from entity_encoder.observation import EntityTensors
from entity_encoder.positions import check_single_ego
from entity_encoder.schema import EntitySchema

__all__ = ["WIDTHS", "CompiledEncoder", "compile_encoder", "fitting_width"]

WIDTHS = (8, 16, 32, 64)

# Per shape there may be one graph for learning and one without gradients, one for the critic, one
# for a batch of 1. PyTorch's own limit of 8 would end in uncompiled code without a word.
_RECOMPILE_LIMIT = 256


def fitting_width(slots: int, capacity: int, widths: Sequence[int] = WIDTHS) -> int:
    """Round a number of slots up to one of a few.

    Args:
        slots: N, slots that came.
        capacity: Slots of the group in the schema: the number that comes nearly always.
        widths: What else N is rounded up to; multiples of the largest beyond it.
    """
    fitting = [width for width in (*widths, capacity) if width >= slots]
    largest = max(widths)
    return min(fitting) if fitting else -(-slots // largest) * largest


class CompiledEncoder(nn.Module):
    """An `EntityEncoder` whose forward is compiled; see `compile_encoder`."""

    def __init__(
        self,
        encoder: EntityEncoder,
        *,
        widths: Sequence[int] = WIDTHS,
        backend: str | Callable[..., Any] = "inductor",
        mode: str | None = None,
    ) -> None:
        super().__init__()
        if not widths or min(widths) < 2:
            # PyTorch compiles sizes 0 and 1 apart.
            raise ValueError(f"widths must be numbers of at least 2, got {tuple(widths)}")
        self.encoder = encoder
        self.widths = tuple(sorted(widths))
        self._reuses_memory = mode in ("reduce-overhead", "max-autotune")
        self._compiled = torch.compile(self._dense, fullgraph=True, backend=backend, mode=mode)

    @property
    def schema(self) -> EntitySchema:
        """The encoder's schema."""
        return self.encoder.schema

    @property
    def d_model(self) -> int:
        """Width of an encoded entity."""
        return self.encoder.d_model

    @property
    def output_dim(self) -> int:
        """Width of `pooled`."""
        return self.encoder.output_dim

    def update_statistics(
        self, observation: Mapping[str, Any], valid: Tensor | None = None
    ) -> None:
        """See `EntityEncoder.update_statistics`."""
        self.encoder.update_statistics(observation, valid)

    def forward(
        self,
        observation: Mapping[str, Any],
        *,
        critic: bool = False,
        return_attention: bool = False,
    ) -> EntityEncoding:
        """Encode an observation; see `EntityEncoder.forward`.

        Attention maps and empty batches take the encoder's own path.
        """
        encoder = self.encoder
        entities = encoder.read(observation, check=encoder.check)
        batch = len(entities.masks[0])
        if return_attention or not batch:
            return encoder(observation, critic=critic, return_attention=return_attention)
        self._check_ego(entities)
        wide = self._widen(entities)
        with torch._dynamo.config.patch(recompile_limit=_RECOMPILE_LIMIT):
            pooled, table, mask = self._compiled(wide, critic)
        if self._reuses_memory:  # the next call overwrites what a CUDA graph returned
            pooled, table, mask = pooled.clone(), table.clone(), mask.clone()
        return self._narrow(entities, pooled, table, mask)

    def _dense(self, observation: dict[str, Tensor], critic: bool) -> tuple[Tensor, Tensor, Tensor]:
        """What is compiled; `attention="auto"` is dense there."""
        encoding = self.encoder(observation, critic=critic)
        return encoding.pooled, encoding.entities, encoding.mask

    def _check_ego(self, entities: EntityTensors) -> None:
        """Make the checks that look at values: compiled code cannot."""
        names = [group.name for group in self.schema.groups]
        egos = set() if self.encoder.ego is None else {self.encoder.ego}
        if self.schema.frame is not None:
            egos.add(names.index(self.schema.frame.group))
        for ego in egos:
            check_single_ego(entities.masks[ego], names[ego])

    def _widen(self, entities: EntityTensors) -> dict[str, Tensor]:
        """Append absent slots, and say which sizes vary."""
        out: dict[str, Tensor] = {}
        for group, x, mask in zip(
            self.schema.groups, entities.features, entities.masks, strict=True
        ):
            slots = mask.shape[1]
            more = fitting_width(slots, group.slots, self.widths) - slots
            out[group.name] = nn.functional.pad(x, (0, 0, 0, more)) if more else x
            if group.mask_key is not None:
                out[group.mask_key] = nn.functional.pad(mask, (0, more)) if more else mask
        for item, vector in zip(self.schema.globals, entities.globals, strict=True):
            out[item.name] = vector
        for x in out.values():
            torch._dynamo.maybe_mark_dynamic(x, 0)
            torch._dynamo.mark_static(x, 1)
        return out

    def _narrow(
        self, entities: EntityTensors, pooled: Tensor, table: Tensor, mask: Tensor
    ) -> EntityEncoding:
        """Cut the appended slots off and put the leading dimensions back."""
        tables, masks, start = [], [], 0
        for group, came in zip(self.schema.groups, entities.masks, strict=True):
            slots = came.shape[1]
            tables.append(table[:, start : start + slots])
            masks.append(mask[:, start : start + slots])
            start += fitting_width(slots, group.slots, self.widths)
        table, mask = torch.cat(tables, dim=1), torch.cat(masks, dim=1)
        names = [group.name for group in self.schema.groups]
        lead = entities.lead
        return EntityEncoding(
            pooled.reshape(*lead, pooled.shape[1]),
            mask.reshape(*lead, mask.shape[1]),
            layouts=[dense_layout(mask)],
            rows=[table],
            slices=dict(zip(names, entities.slices, strict=True)),
        )


def compile_encoder(
    encoder: EntityEncoder,
    *,
    widths: Sequence[int] = WIDTHS,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
) -> CompiledEncoder:
    """Compile an encoder with `torch.compile`, for GPUs: on a CPU packing is faster.

    The number of slots is rounded up to the capacity in the schema or one of a few widths, by
    absent slots that change nothing, so that observations of many sizes share a few graphs. The
    batch size stays free. With several groups, each combination of their widths is a graph.

    Args:
        encoder: Shares its weights with the result. Its `attention` should be "auto" or "dense".
        widths: Numbers of slots to round up to.
        backend: Compiler, as for `torch.compile`.
        mode: As for `torch.compile`; "reduce-overhead" captures CUDA graphs.

    Raises:
        ValueError: For an encoder that was told to pack, and widths below 2.
    """
    if encoder.attention not in ("auto", "dense"):
        raise ValueError(
            f"attention must be 'auto' or 'dense' to be compiled, got {encoder.attention!r}: "
            "packed paths have shapes that depend on the data"
        )
    return CompiledEncoder(encoder, widths=widths, backend=backend, mode=mode)
