"""What can be watched while training goes on.

Callbacks draw their random numbers from generators of their own and change no parameter: with
them or without them, training gives the same bits.
"""

from entity_encoder.agents.callbacks.attention import AttentionMaps
from entity_encoder.agents.callbacks.embeddings import Embeddings
from entity_encoder.agents.callbacks.evaluation import Evaluation, evaluation_metrics
from entity_encoder.agents.callbacks.film import Film
from entity_encoder.agents.callbacks.histograms import Histograms
from entity_encoder.agents.callbacks.profile import Profile

__all__ = [
    "AttentionMaps",
    "Embeddings",
    "Evaluation",
    "Film",
    "Histograms",
    "Profile",
    "evaluation_metrics",
]
