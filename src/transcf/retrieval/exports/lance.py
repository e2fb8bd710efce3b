"""Vectors in LanceDB, a vector store that is a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from transcf.data.paths import path_of
from transcf.errors import MissingExtraError
from transcf.retrieval.exports._folders import fresh_folder
from transcf.retrieval.exports.vectors import Exported, Fitted, Vectors


def export_lancedb(model: Fitted, folder: str | Path) -> Exported:
    """Write a LanceDB database with the tables `users` and `items`.

    `users` has user_id, vector and constant, `items` has item_id and vector. An earlier export
    in the folder is replaced. The store ranks as the model does with the distance type "dot".
    TransCF's mixture has a row of users for each past item, with its past_item_id: ask for each of
    them, and put what was found together (see `exports.vectors`).

    Raises:
        MissingExtraError: lancedb is not installed.
        DataError: The folder holds something else.

    Example:
        >>> import lancedb
        >>> from transcf import IALS, synthesize
        >>> exported = export_lancedb(IALS(dim=8, epochs=1).fit(synthesize()), "vectors.lance")
        >>> tables = lancedb.connect("vectors.lance")
        >>> vector = tables.open_table("users").to_polars().collect()["vector"][0].to_list()
        >>> search = tables.open_table("items").search(vector).distance_type("dot")
        >>> len(search.limit(10).to_list())
        10
    """
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError("Exporting to LanceDB", "lancedb") from error
    vectors = Vectors.of(model)
    target = path_of(folder).absolute()
    with fresh_folder(target, "lancedb", vectors.width, vectors.score) as place:
        store = lancedb.connect(str(place))
        _write(store, "users", vectors.user_tables())
        _write(store, "items", vectors.item_tables())
    return vectors.summary(folder)


def _write(store: Any, name: str, tables: Iterator[pl.DataFrame]) -> None:
    first = next(tables).to_arrow()
    table = store.create_table(name, first)
    for piece in tables:
        table.add(piece.to_arrow().cast(first.schema))
