"""The examples of other people's libraries run, each at a tiny size."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path

import pytest
import torch
from gymnasium import spaces

os.environ["NUMBA_DISABLE_JIT"] = "1"  # compiling takes longer than what Tianshou computes here

LIBRARY = {
    "sb3_ppo": "stable_baselines3",
    "sb3_maskable": "sb3_contrib",
    "skrl_ppo": "skrl",
    "torchrl_ppo": "torchrl",
    "tianshou_ppo": "tianshou",
}


def tiny(name: str) -> list[str]:
    options = ["--steps", "64", "--num-envs", "2"]
    evaluates = name in ("sb3_ppo", "skrl_ppo", "tianshou_ppo")
    return [*options, "--episodes", "4"] if evaluates else options


def load(name: str) -> object:
    if name in LIBRARY:
        pytest.importorskip(LIBRARY[name], reason=f"{LIBRARY[name]} is not installed")
    if name == "skrl_ppo":
        import skrl

        skrl.logger.setLevel("WARNING")  # its handler keeps a stream that pytest closes
    with warnings.catch_warnings():  # TorchRL's own deprecations
        warnings.simplefilter("ignore")
        return importlib.import_module(f"examples.{name}")


@pytest.mark.parametrize("name", [*LIBRARY, "cleanrl_style_ppo"])
def test_it_trains(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module: object = load(name)
    assert -1 <= module.main(tiny(name)) <= 1  # type: ignore[attr-defined]
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", ["sb3_ppo", "skrl_ppo", "torchrl_ppo", "tianshou_ppo"])
def test_it_points_at_entities_and_saves(name: str, tmp_path: Path) -> None:
    module: object = load(name)
    options = ["--env", "Entity/CherryPick-v0", *tiny(name), "--save", str(tmp_path / "model.zip")]
    options += ["--point"] if name == "sb3_ppo" else []
    module.main(options)  # type: ignore[attr-defined]
    assert (tmp_path / "model.zip").stat().st_size > 0


def test_the_single_file_s_advantages_are_sums_over_episodes() -> None:
    module: object = load("cleanrl_style_ppo")
    done = torch.tensor([[0], [1], [0], [0]]) == 1
    value, last = torch.tensor([[0.5], [0.6], [0.7], [0.8]]), torch.tensor([2.0])
    # gamma .99, lambda .95; the second step ends an episode.
    # A3 = 1 + .99 * 2 - .8 = 2.18; A2 = 1 + .99 * .8 - .7 + .9405 * 2.18
    # A1 = 1 - .6; A0 = 1 + .99 * .6 - .5 + .9405 * .4
    expected = torch.tensor([[1.4702], [0.4], [3.14229], [2.18]])
    got = module.gae(torch.ones(4, 1), value, last, done)  # type: ignore[attr-defined]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_ten_lines_serve_any_module() -> None:
    module: object = load("any_module")
    net, space = module.QNetwork(), module.SPACE  # type: ignore[attr-defined]
    assert isinstance(space, spaces.Dict)
    values, danger = net(space.sample())
    assert (values.shape, danger.shape) == ((5,), (16,))
