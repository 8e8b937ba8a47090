"""Float64 NumPy references of the two foreign transformers, entity by entity, without masks.

Each set is compacted to its valid entities first, so nothing here can leak from padding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Weights = dict[str, np.ndarray]
Activation = Callable[[np.ndarray], np.ndarray]


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def linear(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def layer_norm(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int) -> np.ndarray:
    """Attention within one set, (n, heads * d) each, head j in columns j*d to (j+1)*d."""
    d = q.shape[1] // heads
    out = np.zeros((len(q), heads * d))
    for j in range(heads):
        part = slice(j * d, (j + 1) * d)
        scores = q[:, part] @ k[:, part].T / np.sqrt(d)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, part] = weights / weights.sum(1, keepdims=True) @ v[:, part]
    return out


def ding_layer(
    x: np.ndarray, w: Weights, name: str, *, heads: int, mlp_num: int, act: Activation
) -> np.ndarray:
    """One layer of DI-engine's transformer on the entities of one set: (n, D) -> (n, D)."""
    q, k, v = np.split(linear(x, w, f"{name}.attention.attention_pre.0"), 3, axis=1)
    a = linear(attend(q, k, v, heads), w, f"{name}.attention.project.0")
    x = layer_norm(x + a, w, f"{name}.layernorm1")
    z = x
    for j in range(mlp_num):
        z = act(linear(z, w, f"{name}.mlp.{2 * j}.0"))
    return layer_norm(x + z, w, f"{name}.layernorm2")


def ding_set(
    x: np.ndarray, w: Weights, *, heads: int, layers: int, mlp_num: int, act: Activation
) -> np.ndarray:
    """DI-engine's transformer on the n entities of one set: (n, C) -> (n, D)."""
    x = act(linear(x, w, "embedding.0"))
    for i in range(layers):
        x = ding_layer(x, w, f"main.{i}", heads=heads, mlp_num=mlp_num, act=act)
    return x


def pre_norm_set(x: np.ndarray, w: Weights, *, heads: int, normalised: bool) -> np.ndarray:
    """One block of pi-tau's encoder on one set: (n, D) -> (n, D)."""
    h = layer_norm(x, w, "attn_norm")
    q, k, v = (linear(h, w, f"attn.{name}") for name in "QKV")
    x = (h if normalised else x) + linear(attend(q, k, v, heads), w, "attn.Wo")
    h = layer_norm(x, w, "mlp_norm")
    return (h if normalised else x) + linear(relu(linear(h, w, "mlp.0")), w, "mlp.2")


def each_set(
    x: np.ndarray, mask: np.ndarray, width: int, one: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Apply a function to the valid entities of every set; zeros elsewhere: (B, N, width)."""
    out = np.zeros((*mask.shape, width))
    for b in range(len(mask)):
        if mask[b].any():
            out[b, mask[b]] = one(x[b, mask[b]].astype(np.float64))
    return out
