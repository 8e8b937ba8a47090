import importlib
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
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, ours = LIBRARIES[extra], f"entity_encoder.integrations.{extra}"
    for name in list(sys.modules):
        if name.startswith((library + ".", ours + ".")) or name == ours:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(ours)
    assert str(caught.value) == (
        f"{library} is not installed, and entity_encoder.integrations.{extra} needs it: "
        f'pip install "entity-encoder[{extra}]"'
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


@pytest.mark.parametrize("extra", sorted(LIBRARIES))
def test_the_integration_is_imported_where_its_library_is_installed(extra: str) -> None:
    library = LIBRARIES[extra]
    pytest.importorskip(library, reason=f"{library} is not installed: make test-integrations")
    importlib.import_module(f"entity_encoder.integrations.{extra}")
