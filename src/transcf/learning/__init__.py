"""What several algorithms share: settings, training data, learned parts, places for newcomers."""

from transcf.learning.fitting import Fit
from transcf.learning.known import Known
from transcf.learning.learned import Learned
from transcf.learning.settings import setting, settings
from transcf.storage.tensors import Arrays

__all__ = ["Arrays", "Fit", "Known", "Learned", "setting", "settings"]
