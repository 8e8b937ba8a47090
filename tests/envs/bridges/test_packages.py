import pytest

from entity_encoder.envs.bridges.packages import layout_error, require, version_of


def test_a_module_that_is_there_is_returned() -> None:
    assert require("json", "json").dumps([3]) == "[3]"


def test_a_missing_package_names_the_command_that_brings_it() -> None:
    with pytest.raises(ImportError, match=r'needs no-such: pip install "entity-encoder\[envs\]"'):
        require("no_such_module", "no-such")
    with pytest.raises(ImportError, match="needs no-such: see its page"):
        require("no_such_module", "no-such", "see its page")


def test_a_layout_error_names_the_version_seen_and_those_known() -> None:
    assert version_of("no-such") == "unknown"
    error = layout_error("numpy", ("0.1", "0.2"), "width must be 3, got 5")
    assert str(error) == (
        f"width must be 3, got 5; numpy {version_of('numpy')} is installed, "
        "versions known to work: 0.1, 0.2"
    )
