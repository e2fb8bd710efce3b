"""TransCFMixture: a mixture of translations, one for each item of the history."""

from transcf.models.mixture.model import TransCFMixture
from transcf.models.mixture.training import MixtureSettings

__all__ = ["MixtureSettings", "TransCFMixture"]
