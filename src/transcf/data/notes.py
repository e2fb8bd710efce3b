"""Sentences on how a log was read: what is not used, and what ratings mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from transcf.data.columns import Roles, list_names
from transcf.data.rating_filter import left_out
from transcf.data.report import Report

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned.log import PartitionedLog

#: How the step of a report begins that names columns.
_UNUSED = "unused columns "


def with_unused_columns(report: Report, columns: Iterable[str], roles: Roles) -> Report:
    """Return a report with a step that names the columns without a role, if there are any.

    Example:
        >>> print(with_unused_columns(Report(), ["user", "item", "when"], {"user": "user"}))
        unused columns 'item', 'when': columns 2
    """
    unused = [name for name in columns if name not in roles.values()]
    return report.then(_UNUSED + list_names(unused), columns=len(unused)) if unused else report


def reading_notes(log: Interactions | PartitionedLog) -> list[str]:
    """Return sentences on what was not read or left out, and on how ratings are used.

    Args:
        log: The ratings of a `PartitionedLog` stay on disk: nothing is said of them.

    Example:
        >>> import polars as pl
        >>> from transcf import read_interactions
        >>> table = pl.DataFrame({"user": [1, 2], "item": [7, 8], "when": [3, 4]})
        >>> reading_notes(read_interactions(table))
        ["columns not used: 'when' (--column ROLE=NAME gives a column a role)"]
    """
    names = [step.name.removeprefix(_UNUSED) for step in log.report.steps
             if step.name.startswith(_UNUSED)]  # fmt: skip
    notes = [f"columns not used: {some} (--column ROLE=NAME gives a column a role)"
             for some in names]  # fmt: skip
    if excluded := left_out(log.report):
        notes.append(f"{excluded} (--min-rating)")
    ratings = getattr(log, "ratings", None)
    known = np.empty(0) if ratings is None else ratings[~np.isnan(ratings)]
    if len(known) and known.min() < known.max():
        notes.append(
            f"ratings from {known.min():g} to {known.max():g}: every remaining event counts as "
            "positive whatever its rating (--min-rating sets a lower bound)"
        )
    return notes
