"""The approximate index of a model's items, as a file."""

from __future__ import annotations

from pathlib import Path

from transcf.retrieval.exports.vectors import Exported, Fitted, Vectors
from transcf.retrieval.sums import SumForm


def export_index(model: Fitted, path: str | Path) -> Exported:
    """Build an `ItemIndex` of the items that can be recommended, and save it to a file.

    `ItemIndex.search` answers `model.linear_form()`, `search_sums` what is a sum over several:
    `index.search_sums(model.sum_form().of_users(rows), 10)` for TransCF's mixture.

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
    form = vectors.form.sample() if isinstance(vectors.form, SumForm) else vectors.form
    ItemIndex.build(form, model.rankable).save(path)
    return vectors.summary(path)
