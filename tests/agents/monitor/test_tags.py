"""The table of logged numbers, and the page that shows them."""

from __future__ import annotations

import re

from entity_encoder.agents.monitor import (
    SCALARS,
    custom_layout,
    entity_count_tag,
    is_known_tag,
    tag_table,
)


def test_every_tag_is_named_once_and_explained() -> None:
    tags = [scalar.tag for scalar in SCALARS]
    assert len(tags) == len(set(tags))
    assert all(re.fullmatch(r"[a-z_]+/([a-z_]+|\*)", tag) for tag in tags)
    assert all(scalar.meaning and scalar.formula for scalar in SCALARS)


def test_the_layout_shows_tags_of_the_table_only() -> None:
    shown = {
        tag
        for charts in custom_layout().values()
        for _, tags in charts.values()
        for tag in (t.strip("^$").replace(".*", "001") for t in tags)
    }
    assert len(shown) >= 18
    assert all(is_known_tag(tag) for tag in shown)


def test_a_chart_draws_its_tag_and_none_that_begins_like_it() -> None:
    pattern = custom_layout()["Does it learn?"]["return"][1][0]
    assert re.match(pattern, "episode/return")
    assert not re.match(pattern, "episode/return_sd")


def test_entity_counts_sort_as_numbers() -> None:
    tags = [entity_count_tag(0), entity_count_tag(3, 3), entity_count_tag(9, 12)]
    tags.append(entity_count_tag(100, 120))
    assert tags == sorted(tags)
    assert tags[0] == "return_by_entities/000"
    assert tags[1] == "return_by_entities/003"
    assert tags[2] == "return_by_entities/009-012"
    assert all(is_known_tag(tag) for tag in tags)


def test_unknown_tags_are_told_apart() -> None:
    assert is_known_tag("non_finite/weights")
    assert not is_known_tag("episode/retrun")
    assert not is_known_tag("return_by_entity/003")


def test_the_table_has_three_columns_in_every_row() -> None:
    rows = tag_table().splitlines()
    assert len(rows) == len(SCALARS) + 2
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
