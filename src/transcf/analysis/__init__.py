"""What the vectors of a model encode: tables and figures for any data."""

from transcf.analysis.classes import classification
from transcf.analysis.closer import closer
from transcf.analysis.maps import likeness, maps
from transcf.analysis.pairs import Pairs
from transcf.analysis.result import Analysis
from transcf.analysis.spaces import Space, space_of
from transcf.analysis.tastes import tastes
from transcf.analysis.toy import toy
from transcf.analysis.variety import variety

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
    "toy",
    "variety",
]
