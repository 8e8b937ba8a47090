"""Files for the projector, read as TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from entity_encoder.agents.monitor import Monitor
from entity_encoder.agents.monitor.projector import write_projector


def config(run_dir: Path) -> Any:
    return text_format.Parse((run_dir / "projector_config.pbtxt").read_text(), ProjectorConfig())


def test_vectors_labels_and_config_belong_together(tmp_path: Path) -> None:
    vectors = np.arange(6.0).reshape(3, 2) / 8
    labels: dict[str, list[Any]] = {"kind": ["a", "b\tb", "c\nc"], "slot": [0, 1, 2]}
    write_projector(tmp_path, "entities", vectors, labels, 7)
    (table,) = config(tmp_path).embeddings
    assert table.tensor_name == "entities at step 7"
    np.testing.assert_array_equal(np.loadtxt(tmp_path / table.tensor_path), vectors)
    lines = (tmp_path / table.metadata_path).read_text().splitlines()
    assert lines == ["kind\tslot", "a\t0", "b b\t1", "c c\t2"]


def test_a_single_column_has_no_heading(tmp_path: Path) -> None:
    write_projector(tmp_path, "entities", np.zeros((2, 3)), {"kind": ["a", "b"]}, 7)
    assert (tmp_path / "projector/entities_labels.tsv").read_text() == "a\nb\n"


def test_a_tag_is_replaced_and_others_stay(tmp_path: Path) -> None:
    for tag, step in (("one", 1), ("two", 1), ("one", 5)):
        write_projector(tmp_path, tag, np.zeros((1, 2)), {"kind": ["a"]}, step)
    names = [table.tensor_name for table in config(tmp_path).embeddings]
    assert names == ["one at step 5", "two at step 1"]
    assert not list(tmp_path.rglob(".*"))


def test_vectors_that_are_not_finite_are_left_out_with_their_labels(tmp_path: Path) -> None:
    vectors = np.array([[1.0, np.nan], [2.0, 3.0], [np.inf, 0.0]])
    write_projector(tmp_path, "entities", vectors, {"kind": ["a", "b", "c"]}, 1)
    assert (tmp_path / "projector/entities.tsv").read_text() == "2\t3\n"
    assert (tmp_path / "projector/entities_labels.tsv").read_text() == "b\n"


def test_labels_fit_the_vectors(tmp_path: Path) -> None:
    message = r"labels\['kind'\] must have one text for each of 2 vectors, got 1"
    with pytest.raises(ValueError, match=message):
        write_projector(tmp_path, "entities", np.zeros((2, 3)), {"kind": ["a"]}, 1)


def test_a_disabled_monitor_writes_none(tmp_path: Path) -> None:
    with Monitor(tmp_path / "run", enabled=False) as monitor:
        monitor.embedding("entities", np.zeros((1, 2)), {"kind": ["a"]}, 1)
    assert not (tmp_path / "run").exists()
