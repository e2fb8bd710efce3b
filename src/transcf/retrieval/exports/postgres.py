"""Vectors in PostgreSQL, for its extension pgvector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, LiteralString

import polars as pl

from transcf.errors import DataError, MissingExtraError, ParameterError
from transcf.retrieval.exports.vectors import Exported, Fitted, Vectors

if TYPE_CHECKING:
    from psycopg import Connection

#: The longest vectors that pgvector stores, and that its indexes take.
LONGEST, LONGEST_INDEXED = 16_000, 2_000
#: PostgreSQL cuts longer names without a word.
_NAME_BYTES = 63


def export_pgvector(
    model: Fitted, url: str, *, tables: str = "transcf", indexed: bool = False
) -> Exported:
    """Write a table of users and a table of items, in one transaction.

    `<tables>_users` has user_id, vector and constant, `<tables>_items` has item_id and vector;
    ids are bigint or text. Tables of an earlier export are replaced at the end, and until then
    others can read them. The database must have pgvector, or allow to create the extension.

    Args:
        model: A fitted model whose score is an inner product, or a sum over several.
        url: Where the database is: `postgresql://user:password@host/database`.
        tables: What the names of the tables begin with.
        indexed: Whether to build an HNSW index on items: quicker, but the order is then
            approximate; without it the database ranks exactly.

    Raises:
        MissingExtraError: psycopg or pgvector is not installed.
        ParameterError: The vectors are too long for pgvector, the name is too long for
            PostgreSQL, or the URL is none.
        DataError: The database cannot be reached or refuses.

    Example:
        >>> export_pgvector(model, "postgresql:///shop")  # doctest: +SKIP

    The best ten items of a user are then::

        SELECT item_id FROM transcf_items
        ORDER BY vector <#> (SELECT vector FROM transcf_users WHERE user_id = 'ann') LIMIT 10

    TransCF's mixture has a row of users for each past item, with its past_item_id; there they are::

        SELECT item_id FROM transcf_items AS i, transcf_users AS u WHERE user_id = 'ann'
        GROUP BY item_id ORDER BY sum(exp(u.constant - (u.vector <#> i.vector))) DESC LIMIT 10
    """
    try:
        import psycopg
        from pgvector.psycopg import register_vector
    except ImportError as error:
        raise MissingExtraError("Exporting to PostgreSQL", "pgvector") from error
    vectors = Vectors.of(model)
    _check_width(vectors.width, indexed)
    _check_name(tables)
    _check_url(url)
    names = {side: f"{tables}_{side}" for side in ("users", "items")}
    try:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            register_vector(connection)
            _fill(connection, names["users"], vectors.user_tables(), vectors.user_keys)
            _fill(connection, names["items"], vectors.item_tables(), ("item_id",))
            if indexed:
                _run(
                    connection,
                    "CREATE INDEX ON {} USING hnsw (vector vector_ip_ops)",
                    _fresh(names["items"]),
                )
            for name in names.values():
                _run(connection, "DROP TABLE IF EXISTS {}", name)
                _run(connection, "ALTER TABLE {} RENAME TO {}", _fresh(name), name)
    except psycopg.Error as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"PostgreSQL does not take the vectors: {reason}.") from error
    return vectors.summary(" and ".join(names.values()))


def _fill(
    connection: Connection[Any], name: str, tables: Iterator[pl.DataFrame], keys: Sequence[str]
) -> None:
    """Make a table under a temporary name and copy the pieces into it."""
    from psycopg import sql

    first = next(tables)
    kinds = {pl.Int64: "int8", pl.String: "text", pl.Float32: "float4"}
    types = [
        "vector" if kind.is_nested() else kinds[kind.base_type()] for kind in first.schema.values()
    ]
    width = first.schema["vector"].shape[0]  # type: ignore[attr-defined]
    columns = [
        sql.SQL("{} {} NOT NULL").format(
            sql.Identifier(column),
            sql.SQL("vector({})").format(width) if kind == "vector" else sql.SQL(kind),
        )
        for column, kind in zip(first.columns, types, strict=True)
    ]
    table = sql.Identifier(_fresh(name))
    _run(connection, "DROP TABLE IF EXISTS {}", _fresh(name))
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
            table, sql.SQL(", ").join(columns), sql.SQL(", ").join(map(sql.Identifier, keys))
        )
    )
    command = sql.SQL("COPY {} FROM STDIN WITH (FORMAT BINARY)").format(table)
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        copy.set_types(types)
        for piece in (first, *tables):
            arrays = [piece[column].to_numpy() for column in piece.columns]
            for row in zip(*arrays, strict=True):
                copy.write_row(row)


def _run(connection: Connection[Any], command: LiteralString, *names: str) -> None:
    """Run a command with names of tables in it, quoted."""
    from psycopg import sql

    connection.execute(sql.SQL(command).format(*map(sql.Identifier, names)))


def _fresh(name: str) -> str:
    """Return the name of a table while it is being filled."""
    return f"{name}_new"


def _check_width(width: int, indexed: bool) -> None:
    longest = LONGEST_INDEXED if indexed else LONGEST
    if width > longest:
        verb = "indexes" if indexed else "stores"
        remedy = "leave out the index or fit" if indexed and width <= LONGEST else "fit"
        raise ParameterError(
            f"The vectors have {width:,} entries and pgvector {verb} at most {longest:,}: {remedy} "
            "a model with a smaller dim."
        )


def _check_name(tables: str) -> None:
    longest = _NAME_BYTES - len(_fresh("_users"))
    if not tables or "\0" in tables or len(tables.encode()) > longest:
        raise ParameterError(
            f"tables={tables!r} is not allowed; it must be a name of 1 to {longest} bytes."
        )


def _check_url(url: str) -> None:
    """Refuse what is no address, without showing it: there may be a password in it."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        raise ParameterError(
            "The url is not understood: write postgresql://user:password@host/database."
        ) from None
