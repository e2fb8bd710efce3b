"""Hyper-parameter search for one model, on Optuna."""

from transcf.experiments.tuning.result import Tuning
from transcf.experiments.tuning.tuner import tune

__all__ = ["Tuning", "tune"]
