"""What is known beside the events: which users are linked, and which categories items have."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from transcf.data.columns import Role, Roles, find_columns
from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.data.report import Report
from transcf.data.tables import Source
from transcf.data.values import Place, plain_ids, to_categories
from transcf.errors import DataError, shown


def read_links(source: Source, users: IdMap, report: Report) -> tuple[pl.DataFrame, Report]:
    """Read who is linked to whom; ids that are not users of the log are left out and counted.

    Args:
        source: A table with a user and a friend; of one with two columns the names do not matter.
        users: Users of the log.
        report: That of the log.

    Returns:
        The table `user_id, friend_id`, see `mutual_links`, and the longer report.
    """
    frame, places = _read(source, ("user", "friend"))
    columns = (plain_ids(frame[role], places[role]) for role in ("user", "friend"))
    rows, friends = (_rows(column, source, users) for column in columns)
    known = (rows != UNKNOWN) & (friends != UNKNOWN)
    if not known.any():
        raise _strangers(source, "user", users)
    unknown = int(np.count_nonzero(~known))
    links = mutual_links(users, rows[known], friends[known])
    return links, report.then("links", rows=len(frame), with_unknown_users=unknown)


def read_categories(source: Source, items: IdMap, report: Report) -> tuple[pl.DataFrame, Report]:
    """Read the categories of items; items that are not in the log are left out and counted.

    Args:
        source: A table with an item and a category, or a list of them; of one with two columns the
            names do not matter.
        items: Items of the log.
        report: That of the log.

    Returns:
        The table `item_id, category`, one line for each, and the longer report.
    """
    table = category_table(source, items)
    rows = _rows(table["item_id"], source, items)
    known = pl.Series(rows != UNKNOWN)
    if not known.any():
        raise _strangers(source, "item", items)
    unknown = table["item_id"].filter(~known).n_unique()
    kept = table.filter(known).with_columns(item_id=items.ids(rows[rows != UNKNOWN]))
    report = report.then("categories", rows=len(table), unknown_items=unknown)
    return kept.sort("item_id", "category"), report


def category_table(source: Source, items: IdMap) -> pl.DataFrame:
    """Read `item_id, category` of any items, one line for each.

    Args:
        source: As for `read_categories`.
        items: Known ones; where they are integers, so is text without a type, if all of it can be.
    """
    frame, places = _read(source, ("item", "category"))
    ids = plain_ids(frame["item"], places["item"])
    if source.is_text and not items.is_text and ids.dtype == pl.String:
        numbers = ids.cast(pl.Int64, strict=False)
        ids = ids if numbers.null_count() else numbers
    return to_categories(ids, frame["category"], places["category"])


def mutual_links(
    users: IdMap, rows: npt.NDArray[np.integer], friends: npt.NDArray[np.integer]
) -> pl.DataFrame:
    """Make the table `user_id, friend_id` of links between rows.

    Links hold both ways and have a line for each; nobody is linked to themselves.
    """
    ends = np.concatenate([rows, friends]), np.concatenate([friends, rows])
    both = adjacency(ends[0], ends[1], (len(users), len(users)))
    owners, others = both.entry_rows, both.indices
    apart = owners != others
    return pl.DataFrame(
        {"user_id": users.ids(owners[apart]), "friend_id": users.ids(others[apart])}
    )


def adjacency(
    rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer], shape: tuple[int, int]
) -> Csr:
    """Compress pairs of rows and columns, each once; those that are `UNKNOWN` are left out."""
    known = (rows != UNKNOWN) & (columns != UNKNOWN)
    ones = np.ones(np.count_nonzero(known), np.int8)
    found = sp.coo_array((ones, (rows[known], columns[known])), shape=shape).tocsr()
    found.sort_indices()
    return Csr(found.indptr.astype(np.int64), found.indices.astype(np.int32), shape[1])


def _read(source: Source, roles: tuple[Role, Role]) -> tuple[pl.DataFrame, dict[Role, Place]]:
    """Read two columns: by their usual names, or in their order if there are no others."""
    chosen: Roles = {}
    with suppress(DataError) if len(source.columns) == len(roles) else nullcontext():
        chosen = find_columns(source.columns, {}, source.label, roles, has_header=source.has_header)
    if len(source.columns) == len(roles) != len(chosen):
        chosen = dict(zip(roles, source.columns, strict=True))
    missing = [role for role in roles if role not in chosen]
    if missing:
        raise DataError(
            f"{source.label} has no {missing[0]} column: give a table with two columns, "
            f"{' and '.join(roles)}."
        )
    frame = source.read(chosen)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    return frame, {role: Place(source.label, chosen[role], source.where) for role in roles}


def _rows(ids: pl.Series, source: Source, known: IdMap) -> Rows:
    """Return the rows of ids; text without a type stands for integers where the known ones are."""
    if known.is_text or not source.is_text or ids.dtype != pl.String:
        return known.rows_of_column(ids)
    numbers = ids.cast(pl.Int64, strict=False)
    rows = known.rows_of_column(numbers.fill_null(0))
    rows[numbers.is_null().to_numpy()] = UNKNOWN
    return rows


def _strangers(source: Source, what: str, known: IdMap) -> DataError:
    kind = "text" if known.is_text else "integers"
    example = f", such as {shown(known.series[0])}" if len(known) else ""
    return DataError(
        f"{source.label} speaks of no {what} of the log, whose {what} ids are {kind}{example}: "
        "give the same ids."
    )
