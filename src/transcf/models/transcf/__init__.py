"""TransCF as published, its ablations and its extensions."""

from transcf.models.transcf.model import TransCF
from transcf.models.transcf.solver_fast import TransCFSettings

__all__ = ["TransCF", "TransCFSettings"]
