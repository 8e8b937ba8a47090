"""The benchmarks compare like with like, and their commands work."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import encoder, monitoring, timing
from benchmarks.peers import DingTransformer, SdpaPadded
from entity_encoder import EntityTransformer


def test_the_padded_peer_computes_the_same_function() -> None:
    ours = EntityTransformer(5, d_model=12, n_heads=3, d_ff=20, n_layers=2, activation="relu")
    peer = SdpaPadded(5, 12, 3, 20, 2)
    peer.embedding.load_state_dict(ours.embed.state_dict())
    peer.norm.load_state_dict(ours.stack.final_norm.state_dict())
    theirs: Any
    layer: Any
    for theirs, layer in zip(peer.layers, ours.stack.layers, strict=True):
        parts = {"norm1": layer.mixer_norm, "norm2": layer.mlp_norm, "qkv": layer.mixer.qkv}
        parts |= {"out": layer.mixer.out, "inner": layer.inner, "outer": layer.outer}
        for name, module in parts.items():
            getattr(theirs, name).load_state_dict(module.state_dict())
    x, mask = torch.randn(7, 11, 5), torch.rand(7, 11) < 0.6
    mask[:, 0] = True
    assert torch.allclose(ours(x, mask)[mask], peer(x, mask)[mask], atol=1e-5)


def test_the_stand_in_for_ding_computes_what_the_drop_in_class_does() -> None:
    from entity_encoder.compat.ding import Transformer

    torch.manual_seed(0)
    drop_in = Transformer(5, head_dim=4, hidden_dim=20, output_dim=12, head_num=3, layer_num=2)
    peer = DingTransformer(5, 12, 3, 20, 2)
    named = {
        "attention.attention_pre.0": "qkv",
        "attention.project.0": "out",
        "layernorm1": "norm1",
        "layernorm2": "norm2",
        "mlp.0.0": "inner",
        "mlp.2.0": "outer",
    }
    state: dict[str, Any] = {}
    for key, value in drop_in.state_dict().items():
        new = key.replace("embedding.0", "embedding").replace("main.", "layers.")
        for theirs, mine in named.items():
            new = new.replace(theirs, mine)
        state[new] = value
    peer.load_state_dict(state)
    x, mask = torch.randn(7, 11, 5), torch.rand(7, 11) < 0.6
    mask[:, 0] = True
    assert torch.allclose(drop_in(x, mask)[mask], peer(x, mask)[mask], atol=1e-5)


def test_half_fill_draws_sizes_from_one_to_all() -> None:
    x, mask = encoder.make_sets(encoder.Case("small", 4000, 8, 50, "infer"))
    assert x.shape == (4000, 8, encoder.FEATURES)
    assert mask.sum(1).min() == 1
    assert mask.sum(1).max() == 8
    assert mask.float().mean().item() == pytest.approx(4.5 / 8, abs=0.02)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_case_gives_one_flat_row_for_each_contender() -> None:
    case = encoder.Case("small", 3, 5, 50, "train")
    rows = encoder.measure(case, rounds=3, kept=False, memory=True, budget=10)
    names = ["entity-encoder", "di-engine", "torch-transformer-encoder", "sdpa-padded", "floor"]
    assert [row.contender for row in rows] == names
    assert [row.floor_multiple for row in rows][-1] == 1


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measured on Linux only")
def test_peak_memory_counts_what_a_run_held() -> None:
    held = timing.peak_bytes(lambda: torch.ones(64, 2**20))  # 256 MiB
    assert 200 * 2**20 < held < 400 * 2**20


def test_interleaved_rounds_call_everybody_equally() -> None:
    calls: list[str] = []
    timing.interleave({k: partial(calls.append, k) for k in "ab"}, rounds=4)
    assert "".join(calls) == "abababab" + "ab"


def test_what_monitoring_costs_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = monitoring.main(["--env", "Entity/FloorIsLava-v0", "--rounds", "2"])
    assert found["ratio"] > 0
    assert 0 < found["share"] < 1
    shown = capsys.readouterr().out
    for name in ("default log", "film", "attention maps", "histograms", "projector table"):
        assert name in shown
