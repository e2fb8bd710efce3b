"""The approximate index of a model's items, as a file."""

from __future__ import annotations

from pathlib import Path

from transcf.retrieval.exports.vectors import Exported, Fitted, Vectors


def export_index(model: Fitted, path: str | Path) -> Exported:
    """Build an `ItemIndex` of the items that can be recommended, and save it to a file.

    Raises:
        MissingExtraError: faiss is not installed.

    Example:
        >>> export_index(model, "items.index")  # doctest: +SKIP
    """
    from transcf.retrieval.index import ItemIndex

    vectors = Vectors.of(model)
    ItemIndex.build(vectors.form, model.rankable).save(path)
    return vectors.summary(path)
