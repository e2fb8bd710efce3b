"""The solvers of TransCF: `ExactSolver`, the paper to the letter, and `FastSolver`, the default."""

from transcf.models._triples import Problem

from .exact import ExactSolver
from .fast import FastSolver
from .parameters import (
    EpochStats,
    Hyper,
    Parameters,
    initial_parameters,
    neighborhoods,
)

__all__ = [
    "EpochStats",
    "ExactSolver",
    "FastSolver",
    "Hyper",
    "Parameters",
    "Problem",
    "initial_parameters",
    "neighborhoods",
]
