"""CDAE: an autoencoder of what people have, with a node of their own for each."""

from .model import CDAE
from .settings import CDAESettings

__all__ = ["CDAE", "CDAESettings"]
