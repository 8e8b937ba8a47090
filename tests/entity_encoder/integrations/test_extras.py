import subprocess
import sys

import pytest

from entity_encoder.integrations.extras import missing_library

LIBRARIES = {
    "sb3": "stable_baselines3",
    "skrl": "skrl",
    "torchrl": "torchrl",
    "tianshou": "tianshou",
    "rllib": "ray",
}


@pytest.mark.parametrize("extra", sorted(LIBRARIES))
def test_a_library_that_is_not_installed_is_named_with_its_extra(extra: str) -> None:
    code = (
        f"import sys; sys.modules[{LIBRARIES[extra]!r}] = None; "
        f"import entity_encoder.integrations.{extra}"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last == (
        f"ImportError: {LIBRARIES[extra]} is not installed, and entity_encoder.integrations."
        f'{extra} needs it: pip install "entity-encoder[{extra}]"'
    )


def test_another_missing_module_is_reported_as_it_is() -> None:
    error = ModuleNotFoundError("No module named 'x'", name="x")
    assert missing_library(error, "ray", extra="rllib") is error


def test_importing_the_package_of_integrations_imports_no_library() -> None:
    code = (
        "import sys, entity_encoder.integrations as i; "
        f"print([m for m in {sorted(LIBRARIES.values())} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
