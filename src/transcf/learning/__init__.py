"""What several algorithms share: settings, training data, learned parts, places for newcomers."""

from transcf.io.tensors import Arrays
from transcf.learning.fitted import FittedScorer
from transcf.learning.fitting import Fit
from transcf.learning.settings import setting, settings
from transcf.learning.training_data import TrainingData

__all__ = ["Arrays", "Fit", "FittedScorer", "TrainingData", "setting", "settings"]
