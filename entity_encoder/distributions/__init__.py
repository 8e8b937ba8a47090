"""Distributions over actions: exact zeros for the impossible, cheap enough for every step."""

from entity_encoder.distributions.bernoulli import MaskedBernoulli
from entity_encoder.distributions.categorical import MaskedCategorical
from entity_encoder.distributions.composite import Composite
from entity_encoder.distributions.gaussian import DiagonalGaussian
from entity_encoder.distributions.multi_categorical import MaskedMultiCategorical
from entity_encoder.distributions.protocol import ActionDistribution

__all__ = [
    "ActionDistribution",
    "Composite",
    "DiagonalGaussian",
    "MaskedBernoulli",
    "MaskedCategorical",
    "MaskedMultiCategorical",
]
