"""What is built and what is installed: wheel, sdist, version, pinned requirements."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from entity_encoder.version import __version__

ROOT = Path(__file__).parents[1]
FOLDERS = {"entity_encoder": "entity_encoder", "envs": "entity_encoder/envs"}
FOLDERS["agents"] = "entity_encoder/agents"
LINKS = ("entity_encoder/envs", "entity_encoder/agents")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def checkout_modules() -> set[str]:
    """Return every module on disk by the path that it has once installed."""
    modules = set()
    for folder, installed in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if folder != "entity_encoder" or not name.startswith(LINKS):
                modules.add(installed + name.removeprefix(folder))
    return modules


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the checkout and return what it prints."""
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build_wheel(source: Path, out: Path) -> Path:
    """Build a wheel from a source tree without fetching anything."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    call(*pip, "--no-build-isolation", "--wheel-dir", out, source, cwd=out.parent)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what a fresh checkout holds, so that no earlier build is in reach."""
    target = tmp_path_factory.mktemp("checkout") / "source"
    hidden = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "*.egg-info",
                                    "build", "dist", "runs", "site", ".hypothesis")  # fmt: skip
    shutil.copytree(ROOT, target, symlinks=True, ignore=hidden)
    return target


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist and return the folder that it unpacks to."""
    out = tmp_path_factory.mktemp("sdist")
    backend = "from setuptools import build_meta as b; import sys; b.build_sdist(sys.argv[1])"
    call(sys.executable, "-c", backend, out, cwd=source)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    return out / f"entity_encoder-{__version__}"


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the checkout."""
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into an empty environment that can see our dependencies."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False)
    paths = {"base": str(environment), "platbase": str(environment)}
    binaries = Path(sysconfig.get_path("scripts", "venv", vars=paths))
    python = binaries / Path(sys.executable).name
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-index"]
    call(*pip, "--no-deps", wheel, cwd=environment)
    # A .pth file adds the folder but does not read the .pth files in it, so that the editable
    # install of the checkout stays out of sight.
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def wheel_names(wheel: Path) -> set[str]:
    """Return the names of a wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_every_module_on_disk_and_nothing_beside_the_package(wheel: Path) -> None:
    names = wheel_names(wheel)
    assert {name for name in names if name.endswith(".py")} == checkout_modules()
    assert {name.split("/")[0] for name in names} == {
        "entity_encoder",
        f"entity_encoder-{__version__}.dist-info",
    }
    assert "entity_encoder/py.typed" in names


def test_sdist_holds_the_tests_and_each_module_once(sdist: Path) -> None:
    names = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    assert not [name for name in names if name.startswith(LINKS)]
    code = {name for name in names if name.endswith(".py") and name.split("/")[0] in FOLDERS}
    assert code == {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not path.relative_to(ROOT).as_posix().startswith(LINKS)
    }
    assert {
        "tests/conftest.py",
        "tests/test_packaging.py",
        "Makefile",
        "requirements.lock",
    } <= names
    assert {".ci/run", "CHANGELOG.md", "LICENSE", "README.md", "setup.py"} <= names


def test_sdist_builds_the_same_wheel_without_links(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    assert not (sdist / "entity_encoder/envs").exists()
    rebuilt = build_wheel(sdist, tmp_path / "wheel")
    assert wheel_names(rebuilt) == wheel_names(wheel)


def test_wheel_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    script = """
import importlib, sys
import entity_encoder, entity_encoder.envs, entity_encoder.agents
import gymnasium, torch
for name in ("envs", "agents"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        pass
    else:
        raise AssertionError(f"the wheel installed a top-level {name}")
env = gymnasium.make("Entity/CherryPick-v0")
observation, _ = env.reset(seed=3)
encoder = entity_encoder.EntityEncoder(env.observation_space, d_model=8, n_heads=2, n_layers=1)
assert torch.isfinite(encoder(observation).pooled).all()
print(entity_encoder.__file__)
"""
    where = call(installed, "-W", "error", "-c", script, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parents[1])


def test_command_is_installed(installed: Path, tmp_path: Path) -> None:
    assert "train" in call(installed.parent / "entity-encoder", "--help", cwd=tmp_path)


def test_version_stands_in_one_place() -> None:
    newest = re.search(r"^## \[?(\d[^\]\s]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__ == metadata.version("entity-encoder")


def locked() -> dict[str, str]:
    """Return the pinned version of every line of requirements.lock."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line]
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    return {name.lower().replace("_", "-"): v for name, v in (pin.split("==") for pin in pins)}


def test_lock_pins_what_the_project_asks_for_within_its_bounds() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + [
        line for name, lines in extras.items() if name != "rllib" for line in lines
    ]
    pins = locked()
    for requirement in map(Requirement, wanted):
        version = pins[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(version), f"{requirement} against {version}"
    assert pins["torch"] == "2.13.0"


def test_every_make_command_in_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, f"{page.name}: make {named - targets}"
