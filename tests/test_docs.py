"""The README and the pages: every Python block runs, every command exists, every table is true."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from entity_encoder.agents.cli import main
from entity_encoder.agents.cli.main import build_parsers

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
# Blocks that show code nobody should write.
NOT_RUN = ("silently",)
SHORTER = {
    "total_steps=40_000": "total_steps=4096",
    "episodes=100)": "episodes=5)",
    "total_timesteps=100_000": "total_timesteps=256",
    '"timesteps": 12_500': '"timesteps": 33',
}
#: Page -> modules without which its blocks cannot run.
NEEDS = {
    "integrations.md": ("stable_baselines3", "skrl", "torchrl", "tianshou"),
    "bridges.md": ("highway_env", "mpe2"),
    "export.md": ("onnx", "onnxruntime", "onnxscript"),
}


def blocks_of(page: Path, language: str) -> list[str]:
    found = [code for _, kind, code in FENCE.findall(page.read_text()) if kind == language]
    return [code for code in found if not any(word in code for word in NOT_RUN)]


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Forget the environments that a page registers."""
    import entity_encoder.envs  # noqa: F401  (registers ours first)

    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks_of(page, "python")], ids=lambda page: page.name
)
def test_every_python_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in NEEDS.get(page.name, ()):
        pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks_of(page, "python"):
        for long, short in SHORTER.items():
            block = block.replace(long, short)
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_that_is_shown_only_is_python(page: Path) -> None:
    for block in blocks_of(page, "py"):
        ast.parse(block)


def test_the_pages_name_files_that_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(((?!http)[^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def commands_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command of a page's bash blocks."""
    for block in blocks_of(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists(page: Path) -> None:
    parser, _ = build_parsers()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets += [f"test-integration-{name}" for name in ("rllib",)]
    for command in commands_of(page):
        while "=" in command[0]:  # variables in front
            command = command[1:]
        if command[0] == "entity-encoder":
            if command[1:] != ["--help"]:
                assert not parser.parse_known_args(command[1:])[1], command
        elif command[0] == "make":
            assert command[1] in targets, command
        elif "-m" in command:
            module = command[command.index("-m") + 1].replace(".", "/")
            assert any((ROOT / f).exists() for f in (f"{module}.py", f"{module}/__main__.py")) or (
                module.startswith("entity_encoder/agents")
            ), command
        for word in command:
            if word.startswith(("examples/", "benchmarks/")):
                assert (ROOT / word).exists(), command


def test_the_quick_start_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Save the file it says, and run the commands it gives, with fewer steps."""
    page = DOCS / "quickstart.md"
    (tmp_path / "berries.py").write_text(blocks_of(page, "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    commands = [words[1:] for words in commands_of(page) if words[0] == "entity-encoder"]
    ran = [words[0] for words in commands if words[0] in ("train", "eval") and not _run(words)]
    assert ran == ["train", "eval", "eval", "train"]
    assert (tmp_path / "berries.gif").stat().st_size > 1000
    assert "8,192 steps" in capsys.readouterr().out  # of the resumed training
    (in_python,) = blocks_of(page, "py")
    for long, short in {"100_000": "4096", "episodes=200": "episodes=3"}.items():
        in_python = in_python.replace(long, short)
    exec(compile(in_python, str(page), "exec"), {})
    assert (tmp_path / "runs/berries-2/checkpoint/checkpoint.json").exists()
    sys.modules.pop("berries")


def _run(words: list[str]) -> int:
    fewer = {"100_000": "4096", "200_000": "8192", "20_000": "2000", "200": "3"}
    words = [fewer.get(word, word) for word in words]
    return main(words if words[0] == "eval" else [*words, "--eval-episodes", "3"])


def test_what_pages_take_from_the_code_is_there() -> None:
    from docs.hooks import TABLES, on_page_markdown
    from entity_encoder.agents import PPOConfig
    from entity_encoder.agents.monitor.tags import SCALARS
    from entity_encoder.envs import TASKS

    pages = {page: on_page_markdown(page.read_text()) for page in PAGES}
    assert not any("<!-- " in text for text in pages.values())
    assert all(f"| `{known.tag}` |" in pages[DOCS / "ppo.md"] for known in SCALARS)
    assert all(f"| `{name}` |" in pages[DOCS / "ppo.md"] for name in PPOConfig.__dataclass_fields__)
    for name in TASKS:
        assert f"| `Entity/{name}-v0` |" in TABLES["tasks"]()
        assert f".{name}\n" in TABLES["task-pages"]()
    assert "\n::: entity_encoder.agents.PPO\n" in on_page_markdown(
        "<!-- api: entity_encoder.agents -->"
    )
    with pytest.raises(KeyError, match="tagz"):
        on_page_markdown("<!-- table: tagz -->")
    with pytest.raises(ValueError, match="__main__ must have __all__"):
        on_page_markdown("<!-- api: entity_encoder.agents.__main__ -->")


def messages_of(file: Path) -> Iterator[str]:
    """Yield the texts of a source file, with a control character where an f-string has a value."""

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        assert isinstance(node, ast.JoinedStr)
        return "".join(text(v) if isinstance(v, ast.Constant) else "\0" for v in node.values)

    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            yield text(node)


def test_every_quoted_message_is_one_of_ours() -> None:
    folders = (ROOT / "entity_encoder", ROOT / "envs", ROOT / "agents")
    files = {file.resolve() for folder in folders for file in folder.rglob("*.py")}
    known = "\n".join(message for file in files for message in messages_of(file))
    quoted = blocks_of(DOCS / "troubleshooting.md", "text")
    assert len(quoted) > 30
    for message in quoted:
        parts = [part for part in message.strip().split("...") if part.strip()]
        assert any(len(part.strip()) > 8 for part in parts), message
        # A value may be what was written out on the page, as `env` in "env 3".
        pattern = "[^\n]*?".join(re.escape(part.strip()) for part in parts)
        assert re.search(pattern, known), f"no error says: {message}"


def test_tables_of_speed_are_shown_once_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from docs import hooks

    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    assert hooks.speed() == hooks.result("ppo") == ""
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/results/ppo.md").write_text("| a |\n|---|\n| 1 |\n")
    assert hooks.speed().startswith("## Training\n\n")
    assert hooks.speed().endswith("per CPU-second.\n\n| a |\n|---|\n| 1 |")


def test_every_example_is_listed() -> None:
    page = (DOCS / "examples.md").read_text()
    listed = set(re.findall(r"`(\w+\.py)`", page))
    assert listed == {file.name for file in (ROOT / "examples").glob("*.py")}
