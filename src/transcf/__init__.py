"""Recommendations from who-touched-what; see README.md for a first tour.

Names are imported when they are first used, so that `import transcf` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcf import datasets
    from transcf.data.interactions import Interactions
    from transcf.data.readers import read_interactions
    from transcf.data.split import Split
    from transcf.evaluation import evaluate
    from transcf.models.base import Recommender
    from transcf.models.ease import EASE
    from transcf.models.itemknn import ItemKNN
    from transcf.models.popularity import InversePopularity, Popularity
    from transcf.models.random import Random
    from transcf.models.registry import available, create
    from transcf.models.storage import load

__version__ = "0.1.0"

_HOMES = {
    "EASE": "transcf.models.ease",
    "Interactions": "transcf.data.interactions",
    "InversePopularity": "transcf.models.popularity",
    "ItemKNN": "transcf.models.itemknn",
    "Popularity": "transcf.models.popularity",
    "Random": "transcf.models.random",
    "Recommender": "transcf.models.base",
    "Split": "transcf.data.split",
    "available": "transcf.models.registry",
    "create": "transcf.models.registry",
    "load": "transcf.models.storage",
    "read_interactions": "transcf.data.readers",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transcf' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
