"""A model's vectors, in the stores that others rank with."""

from transcf.retrieval.exports.index import export_index
from transcf.retrieval.exports.lance import export_lancedb
from transcf.retrieval.exports.parquet import export_parquet
from transcf.retrieval.exports.postgres import export_pgvector
from transcf.retrieval.exports.vectors import Exported, Fitted

__all__ = [
    "Exported",
    "Fitted",
    "export_index",
    "export_lancedb",
    "export_parquet",
    "export_pgvector",
]
