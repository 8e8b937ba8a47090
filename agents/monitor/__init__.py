"""Logging for TensorBoard: the writer, and the table of everything that is logged."""

from entity_encoder.agents.monitor.describe import describe_run, settings
from entity_encoder.agents.monitor.monitor import Monitor
from entity_encoder.agents.monitor.tags import (
    RESULTS,
    SCALARS,
    ScalarTag,
    custom_layout,
    entity_count_tag,
    is_known_tag,
    tag_table,
)

__all__ = [
    "RESULTS",
    "SCALARS",
    "Monitor",
    "ScalarTag",
    "custom_layout",
    "describe_run",
    "entity_count_tag",
    "is_known_tag",
    "settings",
    "tag_table",
]
