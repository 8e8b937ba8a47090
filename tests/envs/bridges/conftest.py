"""What bridges register is gone again after each file."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import pytest

from entity_encoder.envs.bridges.registration import register_bridges


@pytest.fixture(scope="module", autouse=True)
def registry_as_before() -> Iterator[None]:
    before = set(gymnasium.registry)
    register_bridges()
    yield
    for name in set(gymnasium.registry) - before:
        del gymnasium.registry[name]
