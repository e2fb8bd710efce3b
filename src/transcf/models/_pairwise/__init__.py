"""The solvers of BPR, AoBPR and CML: one way through an epoch, and what differs."""

from .hinge import BoundAfter, HingeSolver, Metric
from .logistic import AdaptiveSolver, Logistic, LogisticSolver
from .solver import PairwiseSolver, Start

__all__ = [
    "AdaptiveSolver",
    "BoundAfter",
    "HingeSolver",
    "Logistic",
    "LogisticSolver",
    "Metric",
    "PairwiseSolver",
    "Start",
]
