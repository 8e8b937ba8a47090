"""The padded network that users of other libraries write, with the arithmetic of ours."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.ppo.setting import Setting
from benchmarks.ppo.task import ACTIONS, FEATURES
from entity_encoder import EntityEncoder
from entity_encoder.agents import EntityPolicy

__all__ = ["PaddedActorCritic", "PaddedEncoder", "copy_weights", "pairs"]


class PaddedEncoder(nn.Module):
    """`nn.TransformerEncoder` with a key padding mask, and a masked mean.

    Layers normalise before attention and MLP, and once more at the end, like ours by default.

    Args:
        setting: Its widths.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.embedding = nn.Linear(FEATURES, setting.d_model)
        layer = nn.TransformerEncoderLayer(
            setting.d_model,
            setting.n_heads,
            setting.d_ff,
            dropout=0.0,
            activation="relu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, setting.n_layers, nn.LayerNorm(setting.d_model), enable_nested_tensor=False
        )

    def forward(self, entities: Tensor, mask: Tensor) -> Tensor:
        """Map (B, N, F) and (B, N), 1 = present, to (B, D)."""
        present = mask.bool()
        x = torch.relu(self.embedding(entities))
        x = self.encoder(x, src_key_padding_mask=~present)
        keep = present[..., None]
        total: Tensor = torch.where(keep, x, 0.0).sum(1)
        return total / keep.sum(1)


class PaddedActorCritic(nn.Module):
    """The encoder with a linear layer for the policy and one for the value.

    Args:
        setting: Its widths.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.encoder = PaddedEncoder(setting)
        self.actor = nn.Linear(setting.d_model, ACTIONS)
        self.critic = nn.Linear(setting.d_model, 1)

    def forward(self, entities: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, 5) and values (B,)."""
        pooled = self.encoder(entities, mask)
        return self.actor(pooled), self.critic(pooled).squeeze(-1)


def pairs(
    ours: EntityPolicy, encoder: PaddedEncoder, actor: nn.Module, critic: nn.Module
) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
    """Yield every parameter of our policy with the padded network's that plays its part.

    Ours has one more, what an empty set gives, which this task never asks for.
    """
    backbone: EntityEncoder = ours.encoder
    embed: nn.Module = backbone.embeddings[0]
    yield embed.linear.weight, encoder.embedding.weight  # type: ignore[union-attr, misc]
    yield embed.kind, encoder.embedding.bias  # type: ignore[misc]
    for mine, theirs in zip(backbone.stack.layers, encoder.encoder.layers, strict=True):
        yield mine.mixer.qkv.weight, theirs.self_attn.in_proj_weight  # type: ignore[union-attr, misc]
        yield mine.mixer.qkv.bias, theirs.self_attn.in_proj_bias  # type: ignore[union-attr, misc]
        for left, right in (
            (mine.mixer.out, theirs.self_attn.out_proj),  # type: ignore[union-attr]
            (mine.inner, theirs.linear1),
            (mine.outer, theirs.linear2),
            (mine.mixer_norm, theirs.norm1),
            (mine.mlp_norm, theirs.norm2),
        ):
            yield from _both(left, right)  # type: ignore[arg-type]
    yield from _both(backbone.stack.final_norm, encoder.encoder.norm)  # type: ignore[arg-type]
    yield from _both(ours.action_head.scores.mlp[0], actor)  # type: ignore[union-attr, index, arg-type]
    yield from _both(ours.value_head.mlp[0], critic)


def copy_weights(
    ours: EntityPolicy, encoder: PaddedEncoder, actor: nn.Module, critic: nn.Module
) -> None:
    """Give the padded network the weights of our policy."""
    with torch.no_grad():
        for mine, theirs in pairs(ours, encoder, actor, critic):
            theirs.copy_(mine)


def _both(ours: nn.Module, theirs: nn.Module) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
    yield ours.weight, theirs.weight  # type: ignore[misc]
    yield ours.bias, theirs.bias  # type: ignore[misc]
