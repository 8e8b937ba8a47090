"""What can be watched while training goes on, and self-play.

Callbacks draw their random numbers from generators of their own and change no parameter: with
them or without them, training gives the same bits. `SelfPlay` alone has a say in training: it
chooses the opponents.
"""

from entity_encoder.agents.callbacks.attention import AttentionMaps
from entity_encoder.agents.callbacks.embeddings import Embeddings
from entity_encoder.agents.callbacks.evaluation import Evaluation, evaluation_metrics
from entity_encoder.agents.callbacks.film import Film
from entity_encoder.agents.callbacks.histograms import Histograms
from entity_encoder.agents.callbacks.profile import Profile
from entity_encoder.agents.callbacks.self_play import SelfPlay

__all__ = [
    "AttentionMaps",
    "Embeddings",
    "Evaluation",
    "Film",
    "Histograms",
    "Profile",
    "SelfPlay",
    "evaluation_metrics",
]
