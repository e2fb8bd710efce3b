"""TransCF as published, and its ablations."""

from transcf.models.transcf.model import TransCF
from transcf.models.transcf.solver import TransCFSettings

__all__ = ["TransCF", "TransCFSettings"]
