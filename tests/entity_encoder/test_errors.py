"""Claims about the helpers that name what was got."""

from __future__ import annotations

import pytest

from entity_encoder.errors import choose, nearest, require_at_least


def test_the_nearest_choice_is_named_when_there_is_one() -> None:
    assert nearest("grups", ["fast", "groups"]) == "; did you mean 'groups'?"
    assert nearest("xyz", ["fast", "groups"]) == ""


def test_a_choice_passes_or_is_refused_with_all_choices() -> None:
    assert choose("norm", "pre", ("pre", "post")) == "pre"
    with pytest.raises(ValueError, match=r"norm must be one of \['pre', 'post'\], got 'per'; did"):
        choose("norm", "per", ("pre", "post"))


def test_sizes_below_the_least_are_named() -> None:
    require_at_least(1, width=1, other=None)
    with pytest.raises(ValueError, match="height must be at least 1, got 0"):
        require_at_least(1, width=3, height=0)
