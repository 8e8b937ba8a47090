"""Drop-in classes for two other entity transformers, on this package's own attention."""

from entity_encoder.compat import ding, pi_tau

__all__ = ["ding", "pi_tau"]
