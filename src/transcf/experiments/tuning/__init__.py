"""Tuning one model: trials here or in processes of their own, on record, and drawn."""

from transcf.experiments.tuning.result import Tuning
from transcf.experiments.tuning.tuner import tune

__all__ = ["Tuning", "tune"]
