"""The masked set transformer: (x, mask) in, one vector per entity out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entity_encoder.attention import attention_maps, explain_strategy, self_attention
from entity_encoder.cores import CORES, make_mixer
from entity_encoder.errors import choose, require_at_least
from entity_encoder.layout import Layout, dense_layout, packed_layouts, tokens
from entity_encoder.observation import as_mask
from entity_encoder.pinning import is_capturing
from entity_encoder.positions import Rotary

__all__ = [
    "ACTIVATIONS",
    "Block",
    "Context",
    "EntityTransformer",
    "SelfAttention",
    "TransformerStack",
    "choose_strategy",
    "compute_dtype",
    "make_activation",
    "plan",
]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
}


def make_activation(name: str) -> nn.Module:
    """Return a new activation module by name.

    Raises:
        ValueError: For an unknown name, with the nearest one.
    """
    return ACTIVATIONS[choose("activation", name, ACTIVATIONS)]()


class SelfAttention(nn.Module):
    """Multi-head self-attention within each set.

    Args:
        d_model: Width D of the entities.
        n_heads: Number of heads H.
        head_dim: Width of a head; default `d_model // n_heads`.
        dropout: Probability of dropping an attention weight while training.
    """

    def __init__(
        self, d_model: int, n_heads: int, *, head_dim: int | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        head_dim = d_model // n_heads if head_dim is None else head_dim
        self.n_heads = n_heads
        self.dropout = dropout
        self.qkv = nn.Linear(d_model, 3 * n_heads * head_dim)
        self.out = nn.Linear(n_heads * head_dim, d_model)

    def forward(self, x: Tensor, layout: Layout, context: Context) -> Tensor:
        """Attend: (R, D) or (B, N, D) to the same shape."""
        qkv = self.qkv(x)
        rotary, angles = context.rotary, context.angles
        if rotary is not None and angles is not None:
            qkv = rotary(qkv, angles, self.n_heads)
        bias = context.next_bias()
        if context.maps is not None:
            with torch.no_grad():
                context.maps.append(attention_maps(qkv, layout, self.n_heads, bias=bias))
        dropout = self.dropout if self.training else 0.0
        read = self_attention(qkv, layout, self.n_heads, bias=bias, dropout=dropout)
        if rotary is not None and angles is not None:
            read = rotary.undo(read, angles, self.n_heads)
        return self.out(read)


class Context:
    """What the layers of one pass share beside the layout.

    Attributes:
        rotary: Rotates queries, keys and values, with `angles` for the rows of this layout.
        biases: One relative-position bias per layer.
        ego: (S, D) index-free selector of the ego rows: (R,) or (B, N) bool, for the ego core.
        maps: List that collects attention maps, when they were asked for.
    """

    def __init__(
        self,
        *,
        rotary: Rotary | None = None,
        angles: tuple[Tensor, Tensor] | None = None,
        biases: Sequence[Any] = (),
        ego: Tensor | None = None,
        maps: list[Tensor] | None = None,
    ) -> None:
        self.rotary = rotary
        self.angles = angles
        self.ego = ego
        self.maps = maps
        self._biases = list(biases)

    def next_bias(self) -> Any:
        """Return the bias of the layer that runs now."""
        return self._biases.pop(0) if self._biases else None


class Block(nn.Module):
    """One transformer layer: entities interact, then each goes through an MLP.

    `norm="pre"` is x + f(norm(x)); `norm="post"` is norm(x + f(x)) (arXiv 2002.04745).

    Args:
        mixer: Module with forward(x, layout, context): how entities interact.
        d_model: Width D.
        d_ff: Width of the hidden layer of the MLP.
        activation: Name of the activation in the MLP.
        norm: "pre" or "post".
        dropout: Probability of dropping an element of either branch while training.
    """

    def __init__(
        self,
        mixer: nn.Module,
        d_model: int,
        *,
        d_ff: int,
        activation: str = "relu",
        norm: str = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.pre = choose("norm", norm, ("pre", "post")) == "pre"
        self.dropout = dropout
        self.mixer = mixer
        self.mixer_norm = nn.LayerNorm(d_model)
        self.inner = nn.Linear(d_model, d_ff)
        self.activation = make_activation(activation)
        self.outer = nn.Linear(d_ff, d_model)
        self.mlp_norm = nn.LayerNorm(d_model)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def _mlp(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        if isinstance(self.activation, nn.ReLU) and not torch.is_grad_enabled():
            return self.outer(hidden.relu_())  # nobody else holds it: spare a pass over memory
        return self.outer(self.activation(hidden))

    @staticmethod
    def _add(x: Tensor, branch: Tensor) -> Tensor:
        """Add a branch to the residual; without gradients into the branch's own memory."""
        if torch.is_grad_enabled() or branch.dtype != x.dtype or not branch.is_contiguous():
            return x + branch  # a branch may be one row seen many times
        return branch.add_(x)

    def forward(self, x: Tensor, layout: Layout, context: Context) -> Tensor:
        """Transform (R, D) or (B, N, D) rows."""
        if self.pre:
            x = self._add(x, self._drop(self.mixer(self.mixer_norm(x), layout, context)))
            return self._add(x, self._drop(self._mlp(self.mlp_norm(x))))
        x = self.mixer_norm(self._add(x, self._drop(self.mixer(x, layout, context))))
        return self.mlp_norm(self._add(x, self._drop(self._mlp(x))))


class TransformerStack(nn.Module):
    """Layers over rows that a layout describes; what the encoder and the transformer share.

    Args:
        d_model: Width D.
        n_heads: Heads per layer.
        n_layers: Number of layers.
        d_ff: Hidden width of the MLPs; default 2 * d_model, half of what language models take:
            at these sizes the MLP dominates the cost and learning did not gain from more.
        norm: "pre" (with a final norm) or "post".
        activation: Name of the activation.
        dropout: Probability of dropping while training; 0 for PPO.
        core: How entities interact, one of attention, induced, latent, ego, pool.
        n_points: Inducing points or latents, for the cores that have them.

    Raises:
        ValueError: For widths that do not fit and unknown names.
    """

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int,
        n_layers: int,
        d_ff: int | None = None,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        core: str = "attention",
        n_points: int = 16,
    ) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(
                f"d_model must be divisible by n_heads, got d_model={d_model}, n_heads={n_heads}"
            )
        require_at_least(1, d_model=d_model, d_ff=d_ff)
        require_at_least(0, n_layers=n_layers)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        choose("core", core, CORES)
        d_ff = 2 * d_model if d_ff is None else d_ff
        self.layers = nn.ModuleList(
            Block(
                SelfAttention(d_model, n_heads, dropout=dropout)
                if core == "attention"
                else make_mixer(core, d_model, n_heads, n_points=n_points, dropout=dropout),
                d_model,
                d_ff=d_ff,
                activation=activation,
                norm=norm,
                dropout=dropout,
            )
            for _ in range(n_layers)
        )
        self.final_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self._initialise(n_layers if norm == "pre" else 0)

    @torch.no_grad()
    def _initialise(self, depth: int) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        # Each pre-norm layer adds two branches to the residual: keep their sum at unit scale.
        for layer in self.layers if depth else ():
            assert isinstance(layer, Block)
            layer.outer.weight *= (2 * depth) ** -0.5
            if isinstance(layer.mixer, SelfAttention):
                layer.mixer.out.weight *= (2 * depth) ** -0.5

    def forward(self, x: Tensor, layout: Layout, context: Context | None = None) -> Tensor:
        """Transform (R, D) or (B, N, D) rows."""
        context = Context() if context is None else context
        for layer in self.layers:
            x = layer(x, layout, context)
        return self.final_norm(x)


class EntityTransformer(nn.Module):
    """A transformer over the present entities of each set.

    Args:
        input_dim: Width C of the entities that come in.
        d_model: Width D that goes out.
        n_heads: Heads per layer.
        n_layers: Number of layers.
        d_ff: Hidden width of the MLPs; default 2 * d_model.
        norm: "pre" or "post".
        activation: Name of the activation.
        dropout: Probability of dropping while training.
        core: How entities interact: attention, induced, latent, pool (ego needs the encoder).
        n_points: Inducing points or latents.
        attention: Strategy, see `entity_encoder.attention`.
        chunk_rows: Entities per chunk on the CPU; keeps activations inside the caches.

    Example:
        >>> transformer = EntityTransformer(8, d_model=32)
        >>> x, mask = torch.randn(4, 6, 8), torch.tensor([[1, 0, 1, 1, 0, 0]]).expand(4, 6)
        >>> transformer(x, mask).shape
        torch.Size([4, 6, 32])
    """

    def __init__(
        self,
        input_dim: int,
        *,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int | None = None,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        core: str = "attention",
        n_points: int = 16,
        attention: str = "auto",
        chunk_rows: int = 4096,
    ) -> None:
        super().__init__()
        if core == "ego":
            raise ValueError(
                "core='ego' must know the ego entity, got a plain transformer; "
                "use EntityEncoder(..., core='ego')"
            )
        require_at_least(1, d_model=d_model)
        self.input_dim = input_dim
        self.attention = choose_strategy(attention)
        self.chunk_rows = chunk_rows
        self.embed = nn.Linear(input_dim, d_model)
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode sets.

        Args:
            x: (..., N, C); absent rows may hold anything, NaN included.
            mask: (..., N), True or 1 = present, of any accepted dtype; None = all present. A set
                without entities gives zeros.

        Returns:
            (..., N, D), exactly 0 where absent.

        Raises:
            ValueError: When shapes do not fit, or the mask holds anything but 0 and 1.
        """
        if x.dim() < 2 or x.shape[-1] != self.input_dim:
            raise ValueError(f"x must have shape (..., N, {self.input_dim}), got {tuple(x.shape)}")
        if mask is None:
            mask = torch.ones(x.shape[:-1], dtype=torch.bool, device=x.device)
        if mask.shape != x.shape[:-1]:
            raise ValueError(f"mask must have shape {tuple(x.shape[:-1])}, got {tuple(mask.shape)}")
        mask = as_mask(mask, check=x.device.type == "cpu" and not is_capturing())
        lead = x.shape[:-2]
        flat = x.reshape(math.prod(lead), *x.shape[-2:])
        keep = mask.reshape(math.prod(lead), x.shape[-2])
        layouts = plan(keep, self.attention, compute_dtype(flat), self.chunk_rows)
        rows = [self.stack(self.embed(layout.pick(flat)), layout) for layout in layouts]
        out = tokens(layouts, rows)
        return out.reshape(*lead, *out.shape[-2:])


def choose_strategy(name: str) -> str:
    """Check the name of an attention strategy."""
    from entity_encoder.attention import STRATEGIES

    return choose("attention", name, STRATEGIES)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type linear layers compute in, autocast included."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def plan(mask: Tensor, attention: str, dtype: torch.dtype, chunk_rows: int | None) -> list[Layout]:
    """Lay out a batch: choose the strategy, then pack or keep the slots of `mask` (B, N)."""
    strategy, _ = explain_strategy(
        attention, device=mask.device, dtype=dtype, capturing=is_capturing()
    )
    if strategy == "dense":
        return [dense_layout(mask)]
    max_rows = chunk_rows if mask.device.type == "cpu" else None
    return list(packed_layouts(mask, strategy=strategy, max_rows=max_rows))
