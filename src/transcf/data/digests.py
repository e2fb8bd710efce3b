"""What tells two logs apart, in one short text: the same for the same events in any file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.split import Candidates


def digest_of_log(log: Interactions) -> str:
    """Return the SHA-256 of ids, events, their order, and all that is known beside them.

    The order is that of each user's history, which models may learn from; where a file has its
    events does not matter.

    Example:
        >>> from transcf import synthesize
        >>> digest_of_log(synthesize(seed=0)) == digest_of_log(synthesize(seed=1))
        False
    """
    digest = hashlib.sha256()
    for ids in (log.users.series, log.items.series):
        _add_column(digest, ids)
    for rows in (log.by_user.indptr, log.by_user.indices, log.histories.items):
        digest.update(rows.tobytes())
    for name, values in (("ratings", log.ratings), ("times", log.timestamps)):
        digest.update(f"{name} {values is not None}".encode())
        if values is not None:
            digest.update(values.tobytes())
    digest.update(f"dates {log.times_are_dates}".encode())
    for name, table in (("categories", log.categories), ("links", log.links)):
        digest.update(f"{name} {table is not None}".encode())
        for column in [] if table is None else table.iter_columns():
            _add_column(digest, column)
    return digest.hexdigest()


def digest_of_candidates(candidates: Candidates | None) -> str:
    """Return the SHA-256 of stored candidates; nothing where there are none."""
    if candidates is None:
        return ""
    digest = hashlib.sha256(candidates.indptr.tobytes())
    digest.update(candidates.items.tobytes())
    return digest.hexdigest()


def _add_column(digest: Any, column: pl.Series) -> None:
    """Add ids or names; with their lengths, so that "a", "bc" is not "ab", "c"."""
    digest.update(f"{column.dtype} {len(column)}".encode())
    if column.dtype == pl.String:
        digest.update(column.str.len_bytes().to_numpy().tobytes())
        digest.update((column.str.join("").item() or "").encode())
    else:
        digest.update(column.to_numpy().tobytes())
