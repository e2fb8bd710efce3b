"""Reproduction of TransCF's paper: its tables, and its analyses of translation vectors."""

from transcf.paper.categories import likeness, maps, tastes, variety
from transcf.paper.pairs import classification, closer
from transcf.paper.spaces import Analysis, Pairs, Space, space_of

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
