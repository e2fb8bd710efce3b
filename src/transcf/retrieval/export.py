"""Export of a model's vectors to Parquet, LanceDB, PostgreSQL (pgvector) and an index file.

`score(u, i) = constant_u + vector_u . vector_i`, so the largest inner products are the best items.
Users and items without training interactions are left out, as in `recommend`; an item bias is an
entry of its vector.

A score that is the logarithm of a sum (TransCFMixture) has a user vector for each past item, with
its past_item_id: `score(u, i) = log sum_k exp(constant_uk + vector_uk . vector_i)`. Search the best
items of each of a user's vectors, merge them, and score them by the formula (or, nearly as well, by
its largest term); `retrieval.sums` says how far to search until nothing can be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.atomic import atomic_write_dir
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Mask
from transcf.data.paths import path_of
from transcf.errors import (
    DataError,
    EvaluationError,
    MissingExtraError,
    NotFittedError,
    ParameterError,
)
from transcf.retrieval.scorer import KnowsIds, LinearForm
from transcf.retrieval.sums import SumForm

#: Rows of a table that are written at a time; users with a vector for each past item have many.
PIECE, PIECE_OF_SUMS = 20_000, 500
#: Marks a folder as an export, which may be replaced.
_MARK = "vectors.json"
#: Longest vectors that pgvector stores and indexes, and longest names in PostgreSQL.
_LONGEST, _LONGEST_INDEXED, _NAME_BYTES = 16_000, 2_000, 63


class Fitted(KnowsIds, Protocol):
    """The part of a fitted `Recommender` that an export needs."""

    @property
    def name(self) -> str:
        """Name in errors."""

    @property
    def rankable(self) -> Mask:
        """(n_items,) items with training interactions."""

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if it is one."""

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""

    @property
    def learned_(self) -> Any:
        """The fitted scorer, with a method `sum_form`."""


@dataclass(frozen=True)
class Exported:
    """Summary of an export: target, number of users and items, and length of the vectors."""

    target: str
    users: int
    items: int
    width: int

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def export_parquet(model: Fitted, folder: str | Path) -> Exported:
    """Write `users.parquet` (user_id, vector, constant) and `items.parquet` (item_id, vector).

    Vectors are lists of fixed length, float32. An earlier export in the folder is replaced.

    Raises:
        DataError: The folder holds something else.

    Example:
        >>> from transcf import IALS, synthesize
        >>> log = synthesize()
        >>> export_parquet(IALS(dim=8, epochs=1).fit(log), "vectors").items == log.n_items
        True
    """
    vectors = Vectors.of(model)
    with _export_folder(folder, "parquet", vectors) as place:
        pl.concat(list(vectors.user_tables())).write_parquet(place / "users.parquet")
        pl.concat(list(vectors.item_tables())).write_parquet(place / "items.parquet")
    return vectors.summary(folder)


def export_lancedb(model: Fitted, folder: str | Path) -> Exported:
    """Write a LanceDB database with the tables `users` and `items`; columns as in Parquet.

    An earlier export in the folder is replaced. Search with the distance type "dot".

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
    with _export_folder(folder, "lancedb", vectors) as place:
        store = lancedb.connect(str(place))
        for name, pieces in (("users", vectors.user_tables()), ("items", vectors.item_tables())):
            first = next(pieces).to_arrow()
            table = store.create_table(name, first)
            for piece in pieces:
                table.add(piece.to_arrow().cast(first.schema))
    return vectors.summary(folder)


def export_index(model: Fitted, path: str | Path) -> Exported:
    """Build an `ItemIndex` of the items that can be recommended, and save it to a file.

    `ItemIndex.search` takes user vectors of `model.linear_form()`, `search_sums` those of
    `model.learned_.sum_form()`: `index.search_sums(model.learned_.sum_form().of_users(rows), 10)`.

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
    for _ in vectors.item_tables():
        pass  # checks that they are finite
    form = vectors.form.sample() if isinstance(vectors.form, SumForm) else vectors.form
    ItemIndex.build(form, model.rankable).save(path)
    return vectors.summary(path)


def export_pgvector(
    model: Fitted, url: str, *, tables: str = "transcf", indexed: bool = False
) -> Exported:
    """Write a table of users and a table of items to PostgreSQL, in one transaction.

    `<tables>_users` has user_id, vector and constant, `<tables>_items` has item_id and vector;
    ids are bigint or text. Tables of an earlier export are replaced at the end, and can be read
    until then. The database must have pgvector, or allow to create the extension.

    Args:
        model: A fitted model whose score is an inner product, or a sum over several.
        url: Address of the database: `postgresql://user:password@host/database`.
        tables: Prefix of the names of the tables.
        indexed: Whether to build an HNSW index on items: faster, but approximate.

    Raises:
        MissingExtraError: psycopg or pgvector is not installed.
        ParameterError: The vectors or the name are too long, or the URL is not one.
        DataError: The database cannot be reached or refuses.

    Example:
        >>> export_pgvector(model, "postgresql:///shop")  # doctest: +SKIP

    The best ten items of a user are then::

        SELECT item_id FROM transcf_items
        ORDER BY vector <#> (SELECT vector FROM transcf_users WHERE user_id = 'ann') LIMIT 10

    and for TransCFMixture::

        SELECT item_id FROM transcf_items AS i, transcf_users AS u WHERE user_id = 'ann'
        GROUP BY item_id ORDER BY sum(exp(u.constant - (u.vector <#> i.vector))) DESC LIMIT 10
    """
    try:
        import psycopg
        from pgvector.psycopg import register_vector
        from psycopg import sql
    except ImportError as error:
        raise MissingExtraError("Exporting to PostgreSQL", "pgvector") from error
    vectors = Vectors.of(model)
    _check_pgvector(vectors.width, tables, url, indexed)
    keys = ("user_id", "past_item_id") if isinstance(vectors.form, SumForm) else ("user_id",)
    try:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            register_vector(connection)
            _fill(connection, f"{tables}_users_new", vectors.user_tables(), keys)
            _fill(connection, f"{tables}_items_new", vectors.item_tables(), ("item_id",))
            if indexed:
                items = sql.Identifier(f"{tables}_items_new")
                command = sql.SQL("CREATE INDEX ON {} USING hnsw (vector vector_ip_ops)")
                connection.execute(command.format(items))
            for side in ("users", "items"):
                old, new = (sql.Identifier(f"{tables}_{side}{end}") for end in ("", "_new"))
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(old))
                connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(new, old))
    except psycopg.Error as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"PostgreSQL does not take the vectors: {reason}.") from error
    return vectors.summary(f"{tables}_users and {tables}_items")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Ids and vectors of the users and items of a model.

    Attributes:
        name: Name of the model.
        form: The scores as inner products, or as sums over several, by rows.
        users: User ids.
        items: Item ids.
        user_rows: (n,) users with training interactions.
        item_rows: (m,) items with training interactions.
    """

    name: str
    form: LinearForm | SumForm
    users: IdMap
    items: IdMap
    user_rows: Rows
    item_rows: Rows

    @classmethod
    def of(cls, model: Fitted) -> Vectors:
        """Take them from a fitted model."""
        if not model.is_fitted:
            raise NotFittedError(f"This {type(model).__name__} is not fitted yet: call fit first.")
        form = model.linear_form() or model.learned_.sum_form()
        if form is None:
            raise ParameterError(
                f"{model.name} has no vectors to export: its score is not an inner product; "
                "use its `recommend`, or a model such as TransCF."
            )
        user_rows = np.flatnonzero(model.seen_.counts > 0).astype(np.int32)
        item_rows = np.flatnonzero(model.rankable).astype(np.int32)
        return cls(model.name, form, model.users_, model.items_, user_rows, item_rows)

    @property
    def width(self) -> int:
        """Length of the vectors."""
        return int(self.form.item_vectors.shape[1])

    def summary(self, target: object) -> Exported:
        """Return the summary of an export."""
        return Exported(str(target), len(self.user_rows), len(self.item_rows), self.width)

    def user_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `user_id, vector, constant`, with `past_item_id` in sums."""
        if not isinstance(self.form, SumForm):
            for rows in _pieces(self.user_rows, PIECE):
                ids, constants = self.users.ids(rows), self.form.user_constants[rows]
                yield self._table({"user_id": ids}, self.form.user_vectors[rows], constants)
            return
        for rows in _pieces(self.user_rows, PIECE_OF_SUMS):
            queries = self.form.of_users(rows)
            owners = self.users.ids(np.repeat(rows, np.diff(queries.starts)))
            past = self.items.ids(queries.items)
            keys = {"user_id": owners, "past_item_id": past}
            yield self._table(keys, queries.vectors, queries.constants)

    def item_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `item_id, vector`."""
        for rows in _pieces(self.item_rows, PIECE):
            yield self._table({"item_id": self.items.ids(rows)}, self.form.item_vectors[rows])

    def _table(
        self,
        ids: dict[str, pl.Series],
        vectors: npt.NDArray[np.float32],
        constants: npt.NDArray[np.float32] | None = None,
    ) -> pl.DataFrame:
        if not (np.isfinite(vectors).all() and (constants is None or np.isfinite(constants).all())):
            raise EvaluationError(
                f"{self.name} has NaN or infinite entries in its vectors and is not exported: "
                "check that its training converged."
            )
        column = pl.Series(vectors, dtype=pl.Array(pl.Float32, vectors.shape[1]))
        table = pl.DataFrame({**ids, "vector": column})
        return table if constants is None else table.with_columns(constant=pl.Series(constants))


def _pieces(rows: Rows, length: int) -> Iterator[Rows]:
    """Cut rows into pieces; no rows are one empty piece, so that tables exist."""
    return (rows[start : start + length] for start in range(0, max(1, len(rows)), length))


@contextmanager
def _export_folder(folder: str | Path, kind: str, vectors: Vectors) -> Iterator[Path]:
    """Yield a folder to write to; at the end it replaces an earlier export, if there is one."""
    target = path_of(folder).absolute()
    taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if taken and not (target / _MARK).is_file():
        raise DataError(f"{target} exists and is not an export: choose another folder.")
    score = "user constant + inner product of user vector and item vector"
    if isinstance(vectors.form, SumForm):
        score = f"log of the sum, over a user's rows, of exp({score})"
    about = {"format": f"transcf-vectors-{kind}", "version": 1, "width": vectors.width}
    with atomic_write_dir(target) as unfinished:
        yield unfinished
        text = json.dumps({**about, "score": score}, indent=2) + "\n"
        (unfinished / _MARK).write_text(text, encoding="utf-8")


def _fill(connection: Any, name: str, pieces: Iterator[pl.DataFrame], keys: Sequence[str]) -> None:
    """Create a table and copy the pieces into it."""
    from psycopg import sql

    first = next(pieces)
    kinds = {pl.Int64: "int8", pl.String: "text", pl.Float32: "float4", pl.Array: "vector"}
    types = [kinds[kind.base_type()] for kind in first.schema.values()]
    width = first.schema["vector"].shape[0]  # type: ignore[attr-defined]
    columns = [
        sql.SQL("{} {} NOT NULL").format(
            sql.Identifier(column),
            sql.SQL("vector({})").format(width) if kind == "vector" else sql.SQL(kind),
        )
        for column, kind in zip(first.columns, types, strict=True)
    ]
    table = sql.Identifier(name)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
            table, sql.SQL(", ").join(columns), sql.SQL(", ").join(map(sql.Identifier, keys))
        )
    )
    command = sql.SQL("COPY {} FROM STDIN WITH (FORMAT BINARY)").format(table)
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        copy.set_types(types)
        for piece in (first, *pieces):
            arrays = [piece[column].to_numpy() for column in piece.columns]
            for row in zip(*arrays, strict=True):
                copy.write_row(row)


def _check_pgvector(width: int, tables: str, url: str, indexed: bool) -> None:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    longest = _LONGEST_INDEXED if indexed else _LONGEST
    if width > longest:
        verb = "indexes" if indexed else "stores"
        remedy = "leave out the index or fit" if indexed and width <= _LONGEST else "fit"
        raise ParameterError(
            f"The vectors have {width:,} entries and pgvector {verb} at most {longest:,}: {remedy} "
            "a model with a smaller dim."
        )
    longest = _NAME_BYTES - len("_users_new")
    if not tables or "\0" in tables or len(tables.encode()) > longest:
        raise ParameterError(
            f"tables={tables!r} is not allowed; it must be a name of 1 to {longest} bytes."
        )
    try:
        conninfo_to_dict(url)
    except ProgrammingError:  # not shown: the url may contain a password
        raise ParameterError(
            "The url is not understood: write postgresql://user:password@host/database."
        ) from None
