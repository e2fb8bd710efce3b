"""Export of a model's vectors to Parquet, LanceDB, PostgreSQL (pgvector) and an index file.

`score(u, i) = constant_u + vector_u . vector_i`, so the largest inner products are the best items.
Users and items without training interactions are left out, as in `recommend`; an item bias is an
entry of its vector.

A score that is the logarithm of a sum (TransCFMixture) has a user vector for each past item, with
its past_item_id: `score(u, i) = log sum_k exp(constant_uk + vector_uk . vector_i)`. Search the best
items of each of a user's vectors, merge them, and score them by the formula (or, nearly as well, by
its largest term).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from transcf.data.atomic import atomic_write_dir, check_free
from transcf.data.files import path_of
from transcf.errors import DataError, EvaluationError, NotFittedError, ParameterError, needs_extra
from transcf.retrieval.sums import SumForm

#: Rows of a table that are written at a time; users with a vector for each past item have many.
PIECE, PIECE_OF_SUMS = 20_000, 500
#: Marks a folder as an export, which may be replaced.
_MARK = "vectors.json"
#: Types of columns in PostgreSQL.
_SQL_TYPES = {pl.Int64: "int8", pl.String: "text", pl.Float32: "float4", pl.Array: "vector"}


@dataclass(frozen=True)
class Exported:
    """Summary of an export: target, number of users and items, and length of the vectors."""

    target: str
    users: int
    items: int
    width: int


def export_parquet(model: Any, folder: str | Path) -> Exported:
    """Write `users.parquet` (user_id, vector, constant) and `items.parquet` (item_id, vector).

    Vectors are float32 arrays of fixed length. An earlier export in the folder is replaced; a
    folder with other content raises a `DataError`.

    Example:
        >>> from transcf import IALS, synthesize
        >>> export_parquet(IALS(dim=8, epochs=1).fit(synthesize()), "vectors").width
        8
    """
    vectors = Vectors(model)
    with _export_folder(folder, "parquet", vectors) as place:
        for name, pieces in vectors.tables().items():
            pl.concat(pieces).write_parquet(place / f"{name}.parquet")
    return vectors.summary(folder)


def export_lancedb(model: Any, folder: str | Path) -> Exported:
    """Write a LanceDB database with the tables of `export_parquet`; search by distance "dot"."""
    with needs_extra("Exporting to LanceDB", "lancedb"):
        import lancedb
    vectors = Vectors(model)
    with _export_folder(folder, "lancedb", vectors) as place:
        store = lancedb.connect(str(place))
        for name, pieces in vectors.tables().items():
            table = store.create_table(name, next(pieces).to_arrow())
            for piece in pieces:
                table.add(piece.to_arrow().cast(table.schema))
    return vectors.summary(folder)


def export_index(model: Any, path: str | Path) -> Exported:
    """Build an `ItemIndex` of the items that can be recommended, and save it to a file.

    `ItemIndex.search` takes user vectors of `model.linear_form()`.
    """
    from transcf.retrieval.index import ItemIndex

    vectors = Vectors(model)
    if isinstance(vectors.form, SumForm):
        raise ParameterError(
            f"{model.name} has a vector for each past item of a user and an index takes one per "
            "user: export to Parquet, LanceDB or PostgreSQL."
        )
    ItemIndex.build(vectors.form, model.rankable).save(path)
    return vectors.summary(path)


def export_pgvector(model: Any, url: str) -> Exported:
    """Write the tables `transcf_users` and `transcf_items` to PostgreSQL, in one transaction.

    They have the columns of `export_parquet`; ids are bigint or text. Tables of an earlier export
    are replaced at the end. The database must have pgvector, or allow to create the extension; an
    HNSW index on the vectors of items makes searches faster, but approximate.

    The best ten items of a user are then::

        SELECT item_id FROM transcf_items
        ORDER BY vector <#> (SELECT vector FROM transcf_users WHERE user_id = 'ann') LIMIT 10

    and for TransCFMixture::

        SELECT item_id FROM transcf_items AS i, transcf_users AS u WHERE user_id = 'ann'
        GROUP BY item_id ORDER BY sum(exp(u.constant - (u.vector <#> i.vector))) DESC LIMIT 10
    """
    with needs_extra("Exporting to PostgreSQL", "pgvector"):
        import psycopg
        from pgvector.psycopg import register_vector
    vectors = Vectors(model)
    tables = vectors.tables()
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # not shown: the url may contain a password
        raise ParameterError(
            "The url is not understood: write postgresql://user:password@host/database."
        ) from None
    try:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            register_vector(connection)
            for side, pieces in tables.items():
                _fill(connection, f"transcf_{side}_new", pieces, vectors.width)
            for side in tables:
                connection.execute(f"DROP TABLE IF EXISTS transcf_{side}")
                connection.execute(f"ALTER TABLE transcf_{side}_new RENAME TO transcf_{side}")
    except psycopg.Error as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"PostgreSQL does not take the vectors: {reason}.") from error
    return vectors.summary("transcf_users and transcf_items")


class Vectors:
    """Ids and vectors of the users and items of a fitted model, in tables."""

    def __init__(self, model: Any) -> None:
        if not model.is_fitted:
            raise NotFittedError(f"This {type(model).__name__} is not fitted yet: call fit first.")
        self.form = model.linear_form() or model.learned_.sum_form()
        if self.form is None:
            raise ParameterError(
                f"{model.name} has no vectors to export: its score is not an inner product; "
                "use its `recommend`, or a model such as TransCF or a mixture with transitions=0."
            )
        self.model, self.width = model, int(self.form.item_vectors.shape[1])
        self.user_rows = np.flatnonzero(model.seen_.counts > 0).astype(np.int32)
        self.item_rows = np.flatnonzero(model.rankable).astype(np.int32)

    def summary(self, target: object) -> Exported:
        """Return the summary of an export."""
        return Exported(str(target), len(self.user_rows), len(self.item_rows), self.width)

    def tables(self) -> dict[str, Iterator[pl.DataFrame]]:
        """Return both tables in pieces."""
        return {"users": self.user_tables(), "items": self.item_tables()}

    def user_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `user_id, vector, constant`, with `past_item_id` in sums."""
        users, form, past = self.model.users_, self.form, {}
        for rows in _pieces(self.user_rows, PIECE_OF_SUMS if isinstance(form, SumForm) else PIECE):
            found = form.of_users(rows)
            if isinstance(form, SumForm):
                rows = np.repeat(rows, np.diff(found.starts))
                past = {"past_item_id": self.model.items_.ids(found.items)}
                found = found.vectors, found.constants
            yield self._table(user_id=users.ids(rows), **past, vector=found[0], constant=found[1])

    def item_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `item_id, vector`."""
        for rows in _pieces(self.item_rows, PIECE):
            ids = self.model.items_.ids(rows)
            yield self._table(item_id=ids, vector=self.form.item_vectors[rows])

    def _table(self, **columns: Any) -> pl.DataFrame:
        numbers = [column for column in columns.values() if isinstance(column, np.ndarray)]
        if not all(np.isfinite(column).all() for column in numbers):
            raise EvaluationError(
                f"{self.model.name} has NaN or infinite entries in its vectors and is not "
                "exported: check that its training converged."
            )
        return pl.DataFrame(columns, schema_overrides={"vector": pl.Array(pl.Float32, self.width)})


def _pieces(rows: Any, length: int) -> Iterator[Any]:
    """Cut rows into pieces; no rows are one empty piece, so that tables exist."""
    return (rows[start : start + length] for start in range(0, max(1, len(rows)), length))


@contextmanager
def _export_folder(folder: str | Path, kind: str, vectors: Vectors) -> Iterator[Path]:
    """Yield a folder to write to; at the end it replaces an earlier export, if there is one."""
    target = path_of(folder).absolute()
    check_free(target, lambda folder: (folder / _MARK).is_file(), "an export")
    score = "user constant + inner product of user vector and item vector"
    if isinstance(vectors.form, SumForm):
        score = f"log of the sum, over a user's rows, of exp({score})"
    about: dict[str, Any] = {"format": f"transcf-vectors-{kind}", "version": 1}
    about |= {"width": vectors.width, "score": score}
    with atomic_write_dir(target) as unfinished:
        yield unfinished
        (unfinished / _MARK).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _fill(connection: Any, table: str, pieces: Iterator[pl.DataFrame], width: int) -> None:
    """Create a table and copy the pieces into it; its ids are its key."""
    first = next(pieces)
    types = {column: _SQL_TYPES[kind.base_type()] for column, kind in first.schema.items()}
    kinds = types | {"vector": f"vector({width})"}
    columns = ", ".join(f"{column} {kind} NOT NULL" for column, kind in kinds.items())
    keys = ", ".join(column for column in types if column.endswith("_id"))
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({keys}))")
    copying = f"COPY {table} FROM STDIN WITH (FORMAT BINARY)"
    with connection.cursor().copy(copying) as copy:
        copy.set_types(list(types.values()))
        for piece in chain([first], pieces):
            for row in zip(*(column.to_numpy() for column in piece.iter_columns()), strict=True):
                copy.write_row(row)
