"""The encoder once more: one set at a time, in float64, loops over entities, from the definitions.

Shares nothing with the package but the names of the weights. Slow, short, and meant to be read
beside the papers: pre- and post-norm transformers (arXiv 2002.04745), rotary embedding
(2104.09864), induced set attention (1810.00825).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from entity_encoder import EntitySchema

Array = np.ndarray


class Weights:
    """A module's state dict as float64 arrays, read below a prefix."""

    def __init__(self, source: nn.Module | Mapping[str, Array], prefix: str = "") -> None:
        if isinstance(source, nn.Module):
            source = {k: v.detach().double().numpy() for k, v in source.state_dict().items()}
        self.arrays = source
        self.prefix = prefix

    def at(self, name: str) -> Weights:
        """Go one level down."""
        return Weights(self.arrays, f"{self.prefix}{name}.")

    def __getitem__(self, name: str) -> Array:
        return self.arrays[self.prefix + name]

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.arrays

    def linear(self, name: str, x: Array) -> Array:
        """W x + b."""
        out = self[f"{name}.weight"] @ x
        return out + self[f"{name}.bias"] if f"{name}.bias" in self else out

    def norm(self, name: str, x: Array) -> Array:
        """Layer norm of one vector."""
        centred = x - x.mean()
        scaled = centred / math.sqrt((centred**2).mean() + 1e-5)
        return scaled * self[f"{name}.weight"] + self[f"{name}.bias"]


def activate(name: str, x: Array) -> Array:
    """Apply an activation by name."""
    if name == "relu":
        return np.maximum(x, 0)
    if name == "tanh":
        return np.tanh(x)
    assert name == "gelu"
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])


def softmax(scores: Sequence[float]) -> list[float]:
    """exp(s) / sum exp(s)."""
    top = max(scores)
    exps = [math.exp(s - top) for s in scores]
    return [e / sum(exps) for e in exps]


def attend(
    queries: Sequence[Array],
    keys: Sequence[Array],
    values: Sequence[Array],
    heads: int,
    bias: Array | None = None,
) -> list[Array]:
    """Softmax attention; `bias` is (heads, queries, keys)."""
    out = []
    for i, query in enumerate(queries):
        parts = []
        for h in range(heads):
            cut = slice(h * len(query) // heads, (h + 1) * len(query) // heads)
            scale = math.sqrt(cut.stop - cut.start)
            scores = [float(query[cut] @ key[cut]) / scale for key in keys]
            if bias is not None:
                scores = [s + bias[h, i, j] for j, s in enumerate(scores)]
            weights = softmax(scores)
            parts.append(sum(w * value[cut] for w, value in zip(weights, values, strict=True)))
        out.append(np.concatenate(parts))
    return out


def split(x: Array, parts: int) -> list[Array]:
    """Cut a vector into equal parts."""
    return np.split(x, parts)


# --- where entities are -----------------------------------------------------------------------


def in_frame(schema: EntitySchema, tables: dict[str, Array], ego: Array | None) -> dict[str, Array]:
    """Subtract the ego's position and turn by its heading, points as complex numbers."""
    frame = schema.frame
    if frame is None:
        return tables
    group = schema.group(frame.group)
    values = np.zeros(len(group.features)) if ego is None else ego
    at = dict(zip(group.features, values, strict=True))
    origin = [at[name] for name in group.positions]
    turn = 1 + 0j
    if len(frame.heading) == 1:
        turn = cmath.exp(1j * at[frame.heading[0]])
    elif frame.heading:
        vector = complex(*(at[name] for name in frame.heading))
        turn = vector / abs(vector) if vector else 1 + 0j
    out = {}
    for g in schema.groups:
        table = tables[g.name].copy()
        for row in table:
            columns = [g.features.index(name) for name in g.positions]
            for c, start in zip(columns, origin, strict=False):
                row[c] -= start
            if frame.heading:
                vectors = [columns] if columns else []
                names = [g.features.index(name) for name in g.directions]
                vectors += [names[i : i + 2] for i in range(0, len(names), 2)]
                for a, b in vectors:
                    turned = complex(row[a], row[b]) / turn
                    row[a], row[b] = turned.real, turned.imag
                for name in g.angles:
                    c = g.features.index(name)
                    row[c] = cmath.phase(cmath.exp(1j * row[c]) / turn)
        out[g.name] = table
    return out


def rotate(x: Array, position: Array, known: bool, heads: int, back: int = 1) -> Array:
    """Rotary embedding of one vector by coordinates and distance from the origin; back = -1."""
    width = len(x) // heads
    coordinates = [*position, math.sqrt(sum(p * p for p in position))]
    count = width // (2 * len(coordinates))
    steps = [i / (count - 1) if count > 1 else 0.0 for i in range(count)]
    angles = [c * 0.5 * 4.0**step * known for c in coordinates for step in steps]
    half, out = width // 2, x.copy()
    for h in range(heads):
        for i, angle in enumerate(angles):
            first, second = h * width + i, h * width + half + i
            point = complex(x[first], x[second]) * cmath.exp(1j * angle * back)
            out[first], out[second] = point.real, point.imag
    return out


def pair_bias(w: Weights, places: Sequence[tuple[Array, bool]], layers: int, heads: int) -> Array:
    """Bias of every layer and head for every pair: (layers, heads, n, n)."""
    n = len(places)
    out = np.zeros((layers, heads, n, n))
    for i, (here, known) in enumerate(places):
        for j, (there, other) in enumerate(places):
            if known and other:
                offset = there - here
                read = np.append(offset, math.sqrt(float(offset @ offset) + 1e-12))
                hidden = np.maximum(w.linear("inner", read), 0)
                out[:, :, i, j] = w.linear("outer", hidden).reshape(layers, heads)
    return out


# --- how entities interact ----------------------------------------------------------------------


def mix(w: Weights, x: list[Array], core: str, heads: int, extra: Mapping[str, Any]) -> list[Array]:
    """One layer's interaction."""
    if core == "attention":
        q, k, v = zip(*(split(w.linear("qkv", row), 3) for row in x), strict=True)
        if extra.get("rotary"):
            q = [rotate(a, at, on, heads) for a, (at, on) in zip(q, extra["places"], strict=True)]
            k = [rotate(a, at, on, heads) for a, (at, on) in zip(k, extra["places"], strict=True)]
            v = [rotate(a, at, on, heads) for a, (at, on) in zip(v, extra["places"], strict=True)]
        read = attend(q, k, v, heads, extra.get("bias"))
        if extra.get("rotary"):
            places = extra["places"]
            read = [rotate(a, at, on, heads, -1) for a, (at, on) in zip(read, places, strict=True)]
        return [w.linear("out", row) for row in read]
    if core == "pool":
        mean = np.mean([np.maximum(w.linear("value", row), 0) for row in x], axis=0)
        return [w.linear("out", mean)] * len(x)
    if core == "ego":
        chosen = [row for row, is_ego in zip(x, extra["ego"], strict=True) if is_ego]
        query = w.linear("query", chosen[0] if chosen else np.zeros_like(x[0]))
        k, v = zip(*(split(w.linear("kv", row), 2) for row in x), strict=True)
        return [w.linear("out", attend([query], k, v, heads)[0])] * len(x)
    points = list(w["points"])
    k, v = zip(*(split(w.linear("read_kv", row), 2) for row in x), strict=True)
    read = attend([w.linear("read_query", point) for point in points], k, v, heads)
    points = [w.norm("norm", point + more) for point, more in zip(points, read, strict=True)]
    if core == "latent":
        q, k, v = zip(*(split(w.linear("exchange", point), 3) for point in points), strict=True)
        heard = attend(q, k, v, heads)
        points = [p + w.linear("exchange_out", m) for p, m in zip(points, heard, strict=True)]
    k, v = zip(*(split(w.linear("kv", point), 2) for point in points), strict=True)
    told = attend([w.linear("query", row) for row in x], k, v, heads)
    return [w.linear("out", row) for row in told]


def transform(
    w: Weights,
    x: list[Array],
    *,
    n_layers: int,
    n_heads: int,
    norm: str = "pre",
    activation: str = "relu",
    core: str = "attention",
    extra: Mapping[str, Any] | None = None,
) -> list[Array]:
    """Run the layers over the entities of one set."""
    extra = dict(extra or {})
    biases = extra.pop("biases", None)
    for i in range(n_layers):
        layer = w.at(f"layers.{i}")
        if biases is not None:
            extra["bias"] = biases[i]
        mlp = lambda row, layer=layer: layer.linear(
            "outer", activate(activation, layer.linear("inner", row))
        )
        if norm == "pre":
            mixed = mix(
                layer.at("mixer"), [layer.norm("mixer_norm", r) for r in x], core, n_heads, extra
            )
            x = [row + m for row, m in zip(x, mixed, strict=True)]
            x = [row + mlp(layer.norm("mlp_norm", row)) for row in x]
        else:
            mixed = mix(layer.at("mixer"), x, core, n_heads, extra)
            x = [layer.norm("mixer_norm", row + m) for row, m in zip(x, mixed, strict=True)]
            x = [layer.norm("mlp_norm", row + mlp(row)) for row in x]
    return [w.norm("final_norm", row) for row in x] if norm == "pre" else x


# --- the whole encoder --------------------------------------------------------------------------


def normalised(w: Weights, x: Array) -> Array:
    """(x - mean) / sd, clipped at 10, by the statistics in the state dict."""
    if w["count"] == 0:
        return x
    sd = np.sqrt(w["square"] / w["count"] + 1e-8)
    return np.clip((x - w["mean"]) / sd, -10, 10)


def encode(
    encoder: nn.Module, schema: EntitySchema, observation: Mapping[str, Array], options: Any
) -> tuple[Array, dict[str, list[Array | None]]]:
    """Encode one set: pooled, and one vector or None per slot of each group."""
    o = {
        "n_layers": 2,
        "n_heads": 2,
        "norm": "pre",
        "activation": "relu",
        "core": "attention",
        "pooling": "mean",
        "count_feature": False,
        "position_encoding": "none",
        "position_scale": 1.0,
        "ego": None,
        "normalise": True,
        **options,
    }
    ego_name = o["ego"] or (schema.frame.group if schema.frame else None)
    w = Weights(encoder)
    present, tables, ego = {}, {}, None
    for group in schema.groups:
        table = np.asarray(observation[group.name], float)
        if group.mask_key is not None:
            mask = np.asarray(observation[group.mask_key]).reshape(len(table)) == 1
        else:
            mask = table[:, group.features.index(group.presence or "")] > 0.5
        present[group.name] = mask
        tables[group.name] = np.where(mask[:, None], table, 0.0)
        if schema.frame is not None and group.name == schema.frame.group and mask.any():
            ego = table[mask][0]
    tables = in_frame(schema, tables, ego)

    context = None
    if "embed_globals.weight" in w:
        parts = []
        for i, item in enumerate(schema.globals):
            vector = np.asarray(observation[item.name], float)
            parts.append(
                normalised(w.at(f"global_norms.{i}"), vector) if o["normalise"] else vector
            )
        if o["count_feature"]:
            for group in schema.groups:
                n = int(present[group.name].sum())
                edges = [*range(11), 12, 16, 24, 32]
                parts.append(np.interp(n, edges, range(15)) - np.arange(14.0))
                parts[-1] = np.clip(parts[-1], 0, 1)
        context = w.linear("embed_globals", np.concatenate(parts))

    rows, places, owners = [], [], []
    dims = max(len(group.positions) for group in schema.groups)
    for g, group in enumerate(schema.groups):
        embed = w.at(f"embeddings.{g}")
        for slot in np.flatnonzero(present[group.name]):
            raw = tables[group.name][slot]
            scaled = normalised(w.at(f"group_norms.{g}"), raw) if o["normalise"] else raw
            ids = [group.features.index(name) for name, _ in group.categories]
            skip = {*ids, *([group.features.index(group.presence)] if group.presence else [])}
            numeric = [scaled[c] for c in range(len(raw)) if c not in skip]
            row = embed["kind"].copy()
            if numeric:
                row = row + embed.linear("linear", np.array(numeric))
            for t, c in enumerate(ids):
                row = row + embed[f"tables.{t}.weight"][int(raw[c])]
            rows.append(row)
            columns = [group.features.index(name) for name in group.positions]
            known = bool(columns)
            places.append((raw[columns] / o["position_scale"] if known else np.zeros(dims), known))
            owners.append((group.name, slot))
    if o["pooling"] == "class":
        rows.append(w["class_token"].copy())
        places.append((np.zeros(dims), False))
    if context is not None:
        rows = [row + context for row in rows]
    rows = [activate(o["activation"], row) for row in rows]
    is_ego = [owner[0] == ego_name for owner in owners]
    extra: dict[str, Any] = {"ego": is_ego, "places": places}
    if o["position_encoding"] == "rotary":
        extra["rotary"] = True
    elif o["position_encoding"] == "bias" and o["n_layers"]:
        extra["biases"] = pair_bias(w.at("relative_bias"), places, o["n_layers"], o["n_heads"])
    if rows:
        keys = ("n_layers", "n_heads", "norm", "activation", "core")
        rows = transform(w.at("stack"), rows, **{k: o[k] for k in keys}, extra=extra)

    pooled = w["empty"] if not rows else read_out(w.at("pooling"), rows, o, is_ego)
    if context is not None:
        pooled = np.concatenate([pooled, activate(o["activation"], context)])
    slots: dict[str, list[Array | None]] = {g.name: [None] * g.slots for g in schema.groups}
    for (name, slot), row in zip(owners, rows, strict=False):
        slots[name][slot] = row
    return pooled, slots


def read_out(w: Weights, rows: list[Array], o: Mapping[str, Any], is_ego: list[bool]) -> Array:
    """Pool the rows of a set that is not empty."""
    how = o["pooling"]
    if how == "mean":
        return np.mean(rows, axis=0)
    if how == "max":
        return np.max(rows, axis=0)
    if how == "sum":
        return np.sum(rows, axis=0)
    if how == "class":
        return rows[-1]
    k, v = zip(*(split(w.linear("kv", row), 2) for row in rows), strict=True)
    if how == "attention":
        return np.concatenate(attend(list(w["queries"]), k, v, o["n_heads"]))
    chosen = next((row for row, ego in zip(rows, is_ego, strict=True) if ego), 0 * rows[0])
    return np.concatenate([chosen, attend([w.linear("query", chosen)], k, v, o["n_heads"])[0]])
