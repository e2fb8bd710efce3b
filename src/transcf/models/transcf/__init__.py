"""TransCF as published, and its ablations."""

from transcf.models.transcf.model import TransCF, TransCFSettings

__all__ = ["TransCF", "TransCFSettings"]
