"""Ranks, metrics, protocols and tests of significance; knows no algorithm."""

from transcf.evaluation.evaluator import EpochRecorder, evaluate
from transcf.evaluation.results import (
    Estimate,
    Evaluation,
    average_seeds,
    paired_tests,
    summarize_seeds,
)
from transcf.evaluation.validation import Validation, as_validation

__all__ = [
    "EpochRecorder",
    "Estimate",
    "Evaluation",
    "Validation",
    "as_validation",
    "average_seeds",
    "evaluate",
    "paired_tests",
    "summarize_seeds",
]
