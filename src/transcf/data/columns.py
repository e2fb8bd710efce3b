"""Which column of a table plays which part."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from transcf.errors import DataError

Role: TypeAlias = Literal["user", "item", "rating", "timestamp", "category"]
Roles: TypeAlias = dict[Role, str]

ROLES: tuple[Role, ...] = get_args(Role)

#: Usual names of the columns, without case, blanks and punctuation.
_USUAL: Mapping[Role, str] = {
    "user": "user userid uid username reviewerid customer customerid member memberid visitor "
    "visitorid account accountid",
    "item": "item itemid iid movie movieid isbn product productid asin book bookid artist artistid "
    "track trackid song songid business businessid article articleid bookmarkid",
    "rating": "rating ratings score stars overall bookrating preference",
    "timestamp": "timestamp time date datetime ts unixtime unixtimestamp unixreviewtime createdat "
    "eventtime",
    "category": "category categories categoryid genre genres",
}
_REQUIRED: tuple[Role, ...] = ("user", "item")


def find_columns(
    names: Sequence[str], given: Mapping[Role, str | None], label: str, roles: Sequence[Role]
) -> Roles:
    """Choose a column for each role: the one given, else the one with a usual name.

    Args:
        names: Columns of the table.
        given: What the caller said; None means to look among the usual names.
        label: What the table is called in messages.
        roles: Roles to fill; user and item have to be found, others may be absent.
    """
    chosen: Roles = {}
    for role in roles:
        column = given.get(role)
        if column is None:
            column = _usual_column(names, role, label)
        elif column not in names:
            raise DataError(f"{label} has no column {column!r}; its columns are {_list(names)}.")
        if column is not None:
            chosen[role] = column
    _check_distinct(chosen, label)
    return chosen


def naming(role: Role) -> str:
    """Say how a column is named, in a call and in a shell."""
    return f"name one with {role}=... (in a shell: --column {role}=NAME)"


def _usual_column(names: Sequence[str], role: Role, label: str) -> str | None:
    usual = _USUAL[role].split()
    found = [name for name in names if re.sub(r"[^a-z0-9]", "", name.lower()) in usual]
    if len(found) > 1:
        raise DataError(
            f"{label} has several columns that could be the {role} ({_list(found)}): "
            f"{naming(role)}."
        )
    if not found and role in _REQUIRED:
        raise DataError(
            f"{label} has no {role} column with a usual name such as '{role}_id'; its columns "
            f"are {_list(names)}: {naming(role)}."
        )
    return found[0] if found else None


def _check_distinct(chosen: Roles, label: str) -> None:
    taken: dict[str, str] = {}
    for role, column in chosen.items():
        if column in taken:
            raise DataError(
                f"{label}: column {column!r} cannot be both the {taken[column]} and the {role}."
            )
        taken[column] = role


def _list(names: Sequence[str]) -> str:
    """Name at most a dozen columns."""
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")
