"""The solvers of BPR, AoBPR and CML: one way through an epoch, and what differs."""

from .hinge import BoundAfter, HingeLoss, HingeSolver
from .logistic import AdaptiveSolver, LogisticLoss, LogisticSolver
from .solver import PairwiseSolver, Start

__all__ = [
    "AdaptiveSolver",
    "BoundAfter",
    "HingeLoss",
    "HingeSolver",
    "LogisticLoss",
    "LogisticSolver",
    "PairwiseSolver",
    "Start",
]
