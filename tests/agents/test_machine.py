from pathlib import Path

import pytest
import torch

from entity_encoder.agents.machine import (
    available_cores,
    choose_device,
    choose_threads,
    using_threads,
)


def test_a_containers_quota_counts(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000\n")
    assert available_cores(quota) == 1
    quota.write_text("max 100000\n")
    unlimited = available_cores(quota)
    assert unlimited == available_cores(tmp_path / "missing") >= 1


def test_the_number_of_threads_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("entity_encoder.agents.machine.available_cores", lambda: 6)
    assert choose_threads(3, device=cpu) == (3, "asked for")
    assert choose_threads(0, device=cpu) == (6, "6 cores")
    assert choose_threads(0, device=cpu, ranks=2) == (3, "2 processes share 6 cores")
    assert choose_threads(0, device=cpu, workers=6) == (1, "6 workers share 6 cores")
    assert choose_threads(0, device=torch.device("cuda")) == (1, "the policy learns on cuda")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    count, reason = choose_threads(0, device=cpu)
    assert count == torch.get_num_threads()
    assert reason == "OMP_NUM_THREADS is set"


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="device must be available, got 'cuda' without CUDA"):
        choose_device("cuda")
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, got 'gpu0'"):
        choose_device("gpu0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("cuda") == torch.device("cuda", 1)
    assert choose_device("cuda:3") == torch.device("cuda", 3)
