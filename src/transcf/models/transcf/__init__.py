"""TransCF: its settings, its two solvers, what it learns, and the model itself."""

from transcf.models.transcf.model import TransCF
from transcf.models.transcf.settings import TransCFSettings

__all__ = ["TransCF", "TransCFSettings"]
