"""Vectors as Parquet: two files that any data tool reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from transcf.data.paths import path_of
from transcf.retrieval.exports._folders import fresh_folder
from transcf.retrieval.exports.vectors import Exported, Fitted, Vectors


def export_parquet(model: Fitted, folder: str | Path) -> Exported:
    """Write `users.parquet` (user_id, vector, constant) and `items.parquet` (item_id, vector).

    Vectors are lists of fixed length, float32. TransCF's mixture has a row of users for each past
    item, with its past_item_id; `exports.vectors` says how they are put together. An earlier export
    in the folder is replaced.

    Raises:
        DataError: The folder holds something else.

    Example:
        >>> from transcf import IALS, synthesize
        >>> log = synthesize()
        >>> export_parquet(IALS(dim=8, epochs=1).fit(log), "vectors").items == log.n_items
        True
    """
    vectors = Vectors.of(model)
    target = path_of(folder).absolute()
    with fresh_folder(target, "parquet", vectors.width, vectors.score) as place:
        _write(vectors.user_tables(), place / "users.parquet")
        _write(vectors.item_tables(), place / "items.parquet")
    return vectors.summary(folder)


def _write(tables: Iterator[pl.DataFrame], path: Path) -> None:
    pl.concat(list(tables)).write_parquet(path)
