"""Settings that every test shares."""

import os
from importlib.util import find_spec

import pytest
import torch
from hypothesis import HealthCheck, settings

# Tests of libraries that cannot share an environment with the others, and what each needs.
SEPARATE = {"test_rllib.py": "ray"}

SLOW_TIMEOUT = 1800.0  # seconds for one test marked slow

# The same examples in every run, so that a change is judged by what it changes.
settings.register_profile(
    "ci", max_examples=30, deadline=None, derandomize=True, database=None, print_blob=True
)
# New examples in every run; failures are kept in .hypothesis and tried again first.
settings.register_profile(
    "nightly",
    max_examples=10_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

torch.set_num_threads(1)  # several test processes share the cores


def pytest_ignore_collect(collection_path: os.PathLike[str]) -> bool | None:
    """Leave out the tests of a library that this environment does not have."""
    library = SEPARATE.get(os.path.basename(collection_path))
    return True if library is not None and find_spec(library) is None else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests time, and leave out GPU tests where there is no GPU."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))
    if not torch.cuda.is_available():
        without = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
