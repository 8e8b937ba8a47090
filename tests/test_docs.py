"""Every Python block of the README and the pages runs, block after block, as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Blocks that show code nobody should write, or stand for a whole training.
NOT_RUN = ("silently",)
SHORTER = {
    "total_steps=40_000": "total_steps=4096",
    "episodes=100)": "episodes=5)",
    "total_timesteps=100_000": "total_timesteps=256",
    '"timesteps": 12_500': '"timesteps": 33',
}
LIBRARIES = ("stable_baselines3", "skrl", "torchrl", "tianshou")


def blocks_of(page: Path) -> list[str]:
    return [b for b in BLOCK.findall(page.read_text()) if not any(w in b for w in NOT_RUN)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name
)
def test_every_python_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name == "integrations.md":
        for library in LIBRARIES:
            pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks_of(page):
        for long, short in SHORTER.items():
            block = block.replace(long, short)
        exec(compile(block, str(page), "exec"), names)


def test_the_pages_name_files_that_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(((?!http)[^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
