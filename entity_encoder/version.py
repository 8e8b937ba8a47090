"""The version, in its one place: the package metadata reads it from here."""

__all__ = ["__version__"]

__version__ = "0.1.0"
