"""Encode values as TensorBoard protocol buffers that no input can break."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from tensorboard.compat.proto.histogram_pb2 import HistogramProto
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

from entity_encoder.agents.video import to_frame

__all__ = [
    "histogram_value",
    "hparams_end",
    "hparams_start",
    "image_value",
    "png",
    "scalar_value",
    "split_non_finite",
    "to_floats",
]

HISTOGRAM_BINS = 64
LARGEST = 1e30  # beyond it the sum of squares overflows and the chart shows nothing


def to_floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Bring numbers to the CPU, all tensors in one transfer.

    Args:
        values: Numbers, or arrays and tensors of one element. None means "nothing to report"
            and is left out.
    """
    tensors = {k: v.detach() for k, v in values.items() if isinstance(v, torch.Tensor)}
    numbers = {
        k: float(np.asarray(v, dtype=np.float64).reshape(()))
        for k, v in values.items()
        if v is not None and k not in tensors
    }
    for device in {t.device for t in tensors.values()}:
        here = {k: t for k, t in tensors.items() if t.device == device}
        joined = torch.stack([t.reshape(()).to(torch.float32) for t in here.values()])  # (tags,)
        numbers.update(zip(here, joined.tolist(), strict=True))
    return {k: numbers[k] for k in values if k in numbers}


def scalar_value(tag: str, value: float) -> Summary.Value:
    """Encode one number. NaN is written too: TensorBoard marks it, and hiding it would mislead."""
    return Summary.Value(tag=tag, simple_value=value)


def split_non_finite(values: Any) -> tuple[np.ndarray, int]:
    """Return the finite values, flat, and how many were not finite."""
    if isinstance(values, torch.Tensor):
        values = values.detach().to(device="cpu", dtype=torch.float64).numpy()
    flat = np.asarray(values, dtype=np.float64).reshape(-1)  # (K,)
    finite = flat[np.isfinite(flat)]
    return finite, flat.size - finite.size


def histogram_value(tag: str, finite: np.ndarray) -> Summary.Value:
    """Encode a histogram over evenly spaced bins.

    Args:
        tag: The name of the chart.
        finite: (K,) finite values; none at all gives an empty histogram.
    """
    x = np.clip(finite, -LARGEST, LARGEST) if finite.size else np.zeros(0)
    low, high = (x.min(), x.max()) if x.size else (0.0, 0.0)
    # A constant, or values that differ in the last digit only, still need bins of some width.
    width = max(high - low, 1e-6 * max(abs(low), abs(high)), 1e-12)
    edges = np.linspace(low, low + width, HISTOGRAM_BINS + 1)  # (bins + 1,)
    place = np.clip(((x - low) / width * HISTOGRAM_BINS).astype(np.int64), 0, HISTOGRAM_BINS - 1)
    counts = np.bincount(place, minlength=HISTOGRAM_BINS)  # (bins,)
    proto = HistogramProto(
        min=low,
        max=high,
        num=x.size,
        sum=float(x.sum()),
        sum_squares=float(np.square(x).sum()),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )
    return Summary.Value(tag=tag, histo=proto)


def png(picture: Any) -> tuple[bytes, int, int]:
    """Encode a picture as PNG; return the bytes, the height and the width."""
    array = to_frame(picture)
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, format="PNG")
    return stream.getvalue(), array.shape[0], array.shape[1]


def image_value(tag: str, encoded: bytes, height: int, width: int) -> Summary.Value:
    """Show an encoded picture. Browsers play an animated GIF in the same place."""
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=encoded)
    return Summary.Value(tag=tag, image=image)


def hparams_start(values: Mapping[str, Any], metrics: Sequence[str], group: str) -> list[Any]:
    """Describe a run's settings for the HPARAMS tab, inside the run's own directory.

    Args:
        values: Settings of any type; what is neither number, bool nor text is shown as text.
        metrics: Scalar tags that the tab shows beside them.
        group: The name of the run in the tab.
    """
    start = plugin_data_pb2.SessionStartInfo(group_name=group)
    infos = []
    for name, value in values.items():
        plain = _plain(value)
        field = start.hparams[name]
        if isinstance(plain, bool):
            field.bool_value, kind = plain, api_pb2.DATA_TYPE_BOOL
        elif isinstance(plain, float):
            field.number_value, kind = plain, api_pb2.DATA_TYPE_FLOAT64
        else:
            field.string_value, kind = plain, api_pb2.DATA_TYPE_STRING
        infos.append(api_pb2.HParamInfo(name=name, type=kind))
    experiment = api_pb2.Experiment(
        hparam_infos=infos,
        metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in metrics],
    )
    data = plugin_data_pb2.HParamsPluginData
    return [
        _hparams_value(metadata.EXPERIMENT_TAG, data(experiment=experiment)),
        _hparams_value(metadata.SESSION_START_INFO_TAG, data(session_start_info=start)),
    ]


def hparams_end(*, success: bool) -> Any:
    """Tell the HPARAMS tab that the run is over."""
    status = api_pb2.STATUS_SUCCESS if success else api_pb2.STATUS_FAILURE
    end = plugin_data_pb2.SessionEndInfo(status=status)
    data = plugin_data_pb2.HParamsPluginData(session_end_info=end)
    return _hparams_value(metadata.SESSION_END_INFO_TAG, data)


def _hparams_value(tag: str, data: Any) -> Summary.Value:
    return Summary.Value(
        tag=tag, tensor=metadata.NULL_TENSOR, metadata=metadata.create_summary_metadata(data)
    )


def _plain(value: Any) -> bool | float | str:
    """Reduce a setting to what the tab can sort: a bool, a number, or text."""
    if isinstance(value, np.generic | torch.Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and abs(value) < float("inf"):
        return float(value)
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):
        return repr(value)
