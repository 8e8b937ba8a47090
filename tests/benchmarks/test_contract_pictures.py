"""The pictures of the page on observations are drawn from real states."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install entity-encoder[plot]")

from benchmarks import contract_pictures


def texts(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_all_are_written(tmp_path: Path) -> None:
    for file in contract_pictures.main([str(tmp_path)]):
        with Image.open(file) as picture:
            assert min(picture.size) > 200
            assert len(picture.convert("RGB").getcolors(2**20) or []) > 10


def test_padding_shows_absent_rows_without_values() -> None:
    shown = texts(contract_pictures.draw_padding())
    filled = len([text for text in shown if text == "1"])
    absent = shown.count("0")
    assert filled + absent == 9  # vehicle, target and seven slots for mines
    assert shown.count("anything") == 2 * absent > 0


def test_what_nobody_can_choose_has_no_probability() -> None:
    shown = texts(contract_pictures.draw_legal())
    # ally 0: 3 moves and enemy 0; ally 1: 3 moves and enemies 0, 2, 3; ally 2 is absent
    assert len([text for text in shown if text.startswith("p =")]) == 4 + 6
    assert (shown.count("nobody"), shown.count("masked"), shown.count("absent")) == (4, 2, 8)


def test_holes_are_those_of_an_episode() -> None:
    shown = [text for text in texts(contract_pictures.draw_holes()) if text in ("0", "1")]
    assert len(shown) % 10 == 0  # ten slots at each step
    assert set(shown[-10:]) == {"0"}  # until no job is left
