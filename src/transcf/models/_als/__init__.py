"""Alternating least squares: one objective, three ways to solve a row."""

from .alternation import Alternation, Objective, Solver, cholesky, conjugate, elementwise
from .model import AlternatingRecommender

__all__ = [
    "AlternatingRecommender",
    "Alternation",
    "Objective",
    "Solver",
    "cholesky",
    "conjugate",
    "elementwise",
]
