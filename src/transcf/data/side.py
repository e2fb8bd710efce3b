"""Reading side tables of a log: links between users, and categories of items."""

from __future__ import annotations

import numpy as np
import polars as pl

from transcf.data import validate
from transcf.data.ids import UNKNOWN, IdMap, Rows, plain_integers
from transcf.data.interactions import mutual_links
from transcf.data.report import Report
from transcf.data.tables import TableSource
from transcf.data.validate import Place, Role, Roles
from transcf.errors import DataError, shown


def read_links(source: TableSource, users: IdMap, report: Report) -> tuple[pl.DataFrame, Report]:
    """Read links between users as a table `user_id, friend_id`, and extend the report of the log.

    Ids that are not users of the log are left out and counted.
    """
    frame, places = _read(source, ("user", "friend"), users)
    rows, friends = (
        _rows(validate.checked_ids(frame[role], place), source, users)
        for role, place in places.items()
    )
    known = (rows != UNKNOWN) & (friends != UNKNOWN)
    if not known.any():
        raise _no_known_id(source, "user", users)
    unknown = int(np.count_nonzero(~known))
    links = mutual_links(users, rows[known], friends[known])
    return links, report.then("links", rows=len(frame), with_unknown_users=unknown)


def read_categories(
    source: TableSource, items: IdMap, report: Report
) -> tuple[pl.DataFrame, Report]:
    """Read categories of items as a table `item_id, category`, and extend the report of the log.

    Items that are not in the log are left out and counted.
    """
    frame, places = _read(source, ("item", "category"), items)
    ids = validate.checked_ids(frame["item"], places["item"])
    if source.is_text and not items.is_text and ids.dtype == pl.String:
        numbers = plain_integers(ids)
        ids = ids if numbers.null_count() else numbers
    table = validate.to_categories(ids, frame["category"], places["category"])
    if not len(table):
        raise DataError(
            f"{source.label} has no category in it: column {places['category'].column!r} is empty."
        )
    rows = _rows(table["item_id"], source, items)
    known = pl.Series(rows != UNKNOWN)
    if not known.any():
        raise _no_known_id(source, "item", items)
    unknown = table["item_id"].filter(~known).n_unique()
    kept = table.filter(known).with_columns(item_id=items.ids(rows[rows != UNKNOWN]))
    counts = {"rows": len(table), "unknown_items": unknown}
    if n_empty := frame["category"].null_count():
        counts["without_category"] = n_empty
    return kept.sort("item_id", "category"), report.then("categories", **counts)


def _read(
    source: TableSource, roles: tuple[Role, Role], known: IdMap
) -> tuple[pl.DataFrame, dict[Role, Place]]:
    """Read two columns."""
    chosen = _columns(source, roles, known)
    frame = source.read(chosen)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    return frame, {role: source.place(chosen[role]) for role in roles}


def _columns(source: TableSource, roles: tuple[Role, Role], known: IdMap) -> Roles:
    """Find two columns by their usual names.

    In a table of two columns, a column without a usual name has the role that is left; two such
    columns are in order, unless the names are values of a first row.
    """
    names = source.columns
    usual: list[Role | None] = [None] * len(names)
    if source.has_header:
        usual = validate.usual_roles(names)
    for role in roles:
        if usual.count(role) > 1:
            raise _wrong(source, f"has several columns that could be the {role}", roles)
    chosen: Roles = {role: names[usual.index(role)] for role in roles if role in usual}
    missing = [role for role in roles if role not in chosen]
    others = [name for name, role in zip(names, usual, strict=True) if role is None]
    if len(names) == len(roles) and len(others) == len(missing):
        if not chosen and source.has_header and source.is_text:
            for name, row in zip(names, known.rows(names), strict=True):
                if validate.looks_like_data(name) or row != UNKNOWN:
                    raise _wrong(source, f"has {name!r} in the place of a name", roles)
        return chosen | dict(zip(missing, others, strict=True))
    if missing:
        raise _wrong(source, f"has no {missing[0]} column", roles)
    return chosen


def _wrong(source: TableSource, what: str, roles: tuple[Role, Role]) -> DataError:
    first, second = (role if role == "category" else f"{role}_id" for role in roles)
    return DataError(f"{source.label} {what}: give a table with columns {first} and {second}.")


def _rows(ids: pl.Series, source: TableSource, known: IdMap) -> Rows:
    """Return the rows of ids; untyped text is parsed if the known ids are integers."""
    if known.is_text or not source.is_text or ids.dtype != pl.String:
        return known.rows_of_column(ids)
    numbers = plain_integers(ids)
    rows = known.rows_of_column(numbers.fill_null(0))
    rows[numbers.is_null().to_numpy()] = UNKNOWN
    return rows


def _no_known_id(source: TableSource, what: str, known: IdMap) -> DataError:
    kind = "text" if known.is_text else "integers"
    example = f", such as {shown(known.series[0])}" if len(known) else ""
    return DataError(
        f"{source.label} has no {what} of the log, whose {what} ids are {kind}{example}: "
        "give the same ids."
    )
