"""The training loop: epochs, early stopping, checkpoints, progress; it knows no algorithm."""

from transcf.training.loop import Outcome, Plan, train
from transcf.training.options import FitOptions
from transcf.training.trainable import Epoch, EpochStats, Trainable

__all__ = ["Epoch", "EpochStats", "FitOptions", "Outcome", "Plan", "Trainable", "train"]
