"""FISM: factored similarities between items; users are made of their items."""

from .model import FISM
from .settings import FISMSettings

__all__ = ["FISM", "FISMSettings"]
