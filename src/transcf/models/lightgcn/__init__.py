"""LightGCN: vectors of users and items, smoothed over the graph of who has what."""

from .model import LightGCN
from .settings import LightGCNSettings

__all__ = ["LightGCN", "LightGCNSettings"]
