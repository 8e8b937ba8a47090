"""Imports: which way they point, what they cost, and which names a module gives away."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKS = (ROOT / "entity_encoder/envs", ROOT / "entity_encoder/agents")

# What each package may import of ours, and which libraries it may need just to be imported.
CORE = {"gymnasium", "numpy", "torch"}
NEEDS = CORE | {"PIL", "safetensors", "tensorboard", "tqdm"}
MAY_IMPORT = {
    "entity_encoder": {"entity_encoder"},
    "envs": {"entity_encoder", "envs"},
    "agents": {"entity_encoder", "envs", "agents"},
}
# Folders whose modules exist for one library each.
FOR_ONE_LIBRARY = ("entity_encoder/integrations", "envs/bridges")


def source_files() -> Iterator[Path]:
    """Yield every module of the three packages once, not through the links."""
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(link in path.parents for link in LINKS):
                yield path


FILES = list(source_files())
every_file = pytest.mark.parametrize(
    "path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES]
)


def package_of(path: Path) -> str:
    """Return the folder of the checkout that holds the module."""
    return path.relative_to(ROOT).parts[0]


def part(name: str) -> str:
    """Return which of the three packages a full name such as entity_encoder.envs.vector is in."""
    package, _, rest = name.partition(".")
    inner = rest.split(".")[0]
    return inner if package == "entity_encoder" and inner in ("envs", "agents") else package


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of everything imported below a node: `from a import b` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run, unguarded, when a module is imported."""
    for node in tree.body:
        guarded = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Try)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, ast.ClassDef):
            yield from (child for child in node.body if not isinstance(child, ast.FunctionDef))
        elif not guarded and not typing_only:
            yield node


def run(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter whose warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=cwd, capture_output=True, text=True
    )


@every_file
def test_dependencies_point_one_way(path: Path) -> None:
    ours = [name for name in imported(ast.parse(path.read_text())) if name.startswith("entity_")]
    wrong = [name for name in ours if part(name) not in MAY_IMPORT[package_of(path)]]
    assert not wrong, f"{path.relative_to(ROOT)} must not import {wrong}"


@every_file
def test_imports_are_absolute_and_use_the_installed_name(path: Path) -> None:
    tree = ast.parse(path.read_text())
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert not relative
    assert not [name for name in imported(tree) if name.split(".")[0] in ("envs", "agents")]


@every_file
def test_a_module_needs_only_the_libraries_that_are_installed_with_it(path: Path) -> None:
    if path.relative_to(ROOT).as_posix().startswith(FOR_ONE_LIBRARY):
        return
    allowed = CORE if package_of(path) == "entity_encoder" else NEEDS
    for statement in at_import(ast.parse(path.read_text())):
        libraries = {name.split(".")[0] for name in imported(statement)}
        extra = libraries - allowed - {"entity_encoder"} - set(sys.stdlib_module_names)
        assert not extra, f"import {extra} inside the function that uses it"


def public(tree: ast.Module) -> set[str]:
    """Return the functions and classes that a module defines for others."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")}


def bound(tree: ast.Module) -> set[str]:
    """Return every name that the module's top level binds, by definition or import."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | public(tree) | {name.rpartition(".")[2] for name in imported(tree)}


def order(name: str) -> tuple[int, str]:
    """Sort constants first, then classes, then the rest, as ruff does."""
    kind = 0 if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) else 1 if name[0].isupper() else 2
    return kind, name


@every_file
def test_all_is_sorted_and_names_exactly_what_is_public(path: Path) -> None:
    tree = ast.parse(path.read_text())
    lists = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    if path.name == "__main__.py" or (path.name == "__init__.py" and not tree.body[1:]):
        return
    assert len(lists) == 1, "a module must define __all__ once"
    (names,) = lists
    assert names == sorted(set(names), key=order)
    assert public(tree) <= set(names) <= bound(tree)


def test_importing_the_core_brings_in_neither_environments_nor_optional_libraries() -> None:
    result = run(
        "import gymnasium, numpy, sys, torch\n"
        "before = set(sys.modules)\n"
        "import entity_encoder\n"
        "print(*(set(sys.modules) - before))"
    )
    assert result.stderr == ""
    new = result.stdout.split()
    assert not {part(name) for name in new} & {"envs", "agents"}
    libraries = {name.split(".")[0] for name in new} - set(sys.stdlib_module_names)
    assert libraries - CORE == {"entity_encoder"}


def test_importing_prints_nothing_and_leaves_the_random_state_alone() -> None:
    result = run(
        "import random, numpy, torch\n"
        "def state():\n"
        "    return (random.getstate(), numpy.random.get_state()[1].tolist(),"
        " torch.get_rng_state().tolist(), torch.get_default_dtype(), torch.get_num_threads())\n"
        "before = state()\n"
        "import entity_encoder, entity_encoder.envs, entity_encoder.agents\n"
        "assert state() == before"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_importing_gymnasium_alone_does_not_import_us() -> None:
    result = run(
        "import gymnasium, sys\n"
        "assert not [m for m in sys.modules if m.startswith('entity_encoder')]\n"
        "assert not [i for i in gymnasium.registry if i.startswith('Entity/')]"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("folder", ["envs", "agents"])
def test_the_folder_s_bare_name_is_refused_with_the_right_one(folder: str) -> None:
    result = run(f"import {folder}")
    assert result.returncode == 1
    assert f"ImportError: import entity_encoder.{folder}" in result.stderr
