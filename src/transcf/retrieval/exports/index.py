"""The approximate index of a model's items, as a file."""

from __future__ import annotations

from pathlib import Path

from transcf.retrieval.exports.vectors import Exported, Fitted, Vectors


def export_index(model: Fitted, path: str | Path) -> Exported:
    """Build an `ItemIndex` of the items that can be recommended, and save it to a file.

    Raises:
        MissingExtraError: faiss is not installed.

    Example:
        >>> from transcf import IALS, synthesize
        >>> log = synthesize()
        >>> export_index(IALS(dim=8, epochs=1).fit(log), "items.index").items == log.n_items
        True
    """
    from transcf.retrieval.index import ItemIndex

    vectors = Vectors.of(model)
    ItemIndex.build(vectors.form, model.rankable).save(path)
    return vectors.summary(path)
