"""Reproduction of TransCF's paper: its tables, and its analyses of translation vectors."""

from transcf.paper.analysis import Analysis
from transcf.paper.classes import classification
from transcf.paper.closer import closer, variety
from transcf.paper.maps import likeness, maps
from transcf.paper.spaces import Pairs, Space, space_of
from transcf.paper.tastes import tastes

__all__ = [
    "Analysis",
    "Pairs",
    "Space",
    "classification",
    "closer",
    "likeness",
    "maps",
    "space_of",
    "tastes",
    "variety",
]
