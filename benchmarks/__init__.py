"""Measurements beside our peers; each module is a command, `python -m benchmarks.<name>`."""
