"""Which column of a table plays which part."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from transcf.errors import DataError

Role: TypeAlias = Literal["user", "item", "rating", "timestamp", "category", "friend"]
Roles: TypeAlias = dict[Role, str]
#: A column as callers give it: its name, its number from 1, or None to find it.
Column: TypeAlias = str | int | None

#: Those of an event log.
ROLES: tuple[Role, ...] = ("user", "item", "rating", "timestamp", "category")

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
    "friend": "friend friendid otheruser otheruserid followee followeeid trustee trusteeid",
}
_REQUIRED: tuple[Role, ...] = ("user", "item")
#: Columns of a source without names.
_UNNAMED: Mapping[Role, int] = {"user": 1, "item": 2}


def find_columns(
    names: Sequence[str],
    given: Mapping[Role, Column],
    label: str,
    roles: Sequence[Role],
    *,
    has_header: bool = True,
) -> Roles:
    """Choose a column for each role: the one given, else the one with a usual name.

    Where nothing names the columns, users are in the first and items in the second unless said
    otherwise, and no other role is filled unasked.

    Args:
        names: Columns of the table.
        given: What the caller said, a name or a number counted from 1; None means to look among
            the usual names.
        label: What the table is called in messages.
        roles: Roles to fill; user and item have to be found, others may be absent.
        has_header: Whether the source names its columns; else they are called by their numbers.
    """
    chosen: Roles = {}
    for role in roles:
        wanted = given.get(role)
        if wanted is None and not has_header:
            wanted = _UNNAMED.get(role)
        elif wanted is None:
            wanted = _usual_column(names, role, label)
        if wanted is not None:
            chosen[role] = _column(names, wanted, label, has_header)
    _check_distinct(chosen, label)
    return chosen


def usual_role(name: str) -> Role | None:
    """Return the role that columns of such a name usually have.

    Example:
        >>> usual_role("User ID"), usual_role("shelf")
        ('user', None)
    """
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((role for role, usual in _USUAL.items() if bare in usual.split()), None)


def looks_like_data(name: str) -> bool:
    """Tell whether a name is rather a value of a first row in the place of names."""
    return re.fullmatch(r"-?[0-9.]+", name) is not None


def naming(role: Role) -> str:
    """Say how a column is named, in a call and in a shell."""
    return f"name one with read_interactions(..., {role}=...) (in a shell: --column {role}=NAME)"


def _column(names: Sequence[str], wanted: str | int, label: str, has_header: bool) -> str:
    """Return the name of a column given by name or by number."""
    if isinstance(wanted, str) and wanted in names:
        return wanted
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= len(names):
        return names[wanted - 1]
    if isinstance(wanted, str) and has_header:
        raise DataError(f"{label} has no column {wanted!r}; its columns are {list_names(names)}.")
    raise DataError(f"{label} has no column {wanted!r}; they are counted from 1 to {len(names)}.")


def _usual_column(names: Sequence[str], role: Role, label: str) -> str | None:
    found = [name for name in names if usual_role(name) == role]
    if len(found) > 1:
        raise DataError(
            f"{label} has several columns that could be the {role} ({list_names(found)}): "
            f"{naming(role)}."
        )
    if not found and role in _REQUIRED:
        lost = any(map(looks_like_data, names))
        unnamed = ", or say header=False (--no-header) if the first line is data" if lost else ""
        raise DataError(
            f"{label} has no {role} column with a usual name such as '{role}_id'; its columns "
            f"are {list_names(names)}: {naming(role)}{unnamed}."
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


def list_names(names: Sequence[str]) -> str:
    """Name at most a dozen columns."""
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")
