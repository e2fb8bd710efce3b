"""Honest figures: ranks, metrics, named protocols, tests of significance; it knows no algorithm."""

from transcf.evaluation.protocols import EpochRecorder, evaluate
from transcf.evaluation.ranks import candidate_ranks, full_ranks
from transcf.evaluation.results import Estimate, Evaluation, summarize_seeds
from transcf.evaluation.significance import compare
from transcf.evaluation.validation import Validation

__all__ = [
    "EpochRecorder",
    "Estimate",
    "Evaluation",
    "Validation",
    "candidate_ranks",
    "compare",
    "evaluate",
    "full_ranks",
    "summarize_seeds",
]
