"""What was done to the data on its way in, with counts, and notes about it for users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsInt

import numpy as np
import polars as pl

from transcf.data.validate import Roles, list_names

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned import PartitionedLog

#: Beginnings of the names of steps that `reading_notes` refers to.
LOW_RATINGS = "leave out ratings "
_UNUSED = "unused columns "


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 user", "2,000 users"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Return names as an enumeration: "ease, bpr and slim"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


@dataclass(frozen=True)
class Step:
    """One processing step with its counts."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{k} {v:,}" for k, v in self.counts.items())


@dataclass(frozen=True)
class Report:
    """The steps from the source to the present object, in order."""

    steps: tuple[Step, ...] = ()

    def then(self, name: str, /, **counts: SupportsInt) -> Report:
        """Return this report with one more step."""
        return Report((*self.steps, Step(name, {key: int(n) for key, n in counts.items()})))

    def count(self, name: str, key: str) -> int:
        """Sum a count over all steps of that name (0 if there were none)."""
        return sum(step.counts.get(key, 0) for step in self.steps if step.name == name)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the JSON form: `[{"step": name, counts...}, ...]`."""
        return [{"step": step.name, **step.counts} for step in self.steps]

    @classmethod
    def from_list(cls, steps: list[dict[str, Any]]) -> Report:
        """Read what `to_list` returned."""
        report = cls()
        for step in steps:
            counts = {key: value for key, value in step.items() if key != "step"}
            report = report.then(str(step["step"]), **counts)
        return report

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def with_unused_columns(report: Report, columns: Iterable[str], roles: Roles) -> Report:
    """Return a report with a step that names the columns without a role, if there are any."""
    unused = [name for name in columns if name not in roles.values()]
    return report.then(_UNUSED + list_names(unused), columns=len(unused)) if unused else report


def reading_notes(log: Interactions | PartitionedLog) -> list[str]:
    """Return sentences on what was not read or left out, and on how ratings are used.

    The ratings of a `PartitionedLog` are on disk and are not examined.
    """
    notes, left_out = [], []
    for step in log.report.steps:
        if step.name.startswith(_UNUSED):
            names = step.name.removeprefix(_UNUSED)
            notes.append(f"columns not used: {names} (--read ROLE=NAME gives a column a role)")
        if step.name.startswith(LOW_RATINGS):
            events = counted(step.counts["interactions"], "event")
            bound = step.name.removeprefix(LOW_RATINGS)
            left_out.append(f"{events} with ratings {bound} left out")
    if left_out:
        notes.append(f"{'; '.join(left_out)} (--min-rating)")
    ratings = getattr(log, "ratings", None)
    known = np.empty(0) if ratings is None else ratings[~np.isnan(ratings)]
    if len(known) and known.min() < known.max():
        notes.append(
            f"ratings from {known.min():g} to {known.max():g}: every remaining event counts as "
            "positive whatever its rating (--min-rating sets a lower bound)"
        )
    return notes


def facts_of(log: Interactions) -> dict[str, Any]:
    """Count what a log holds."""
    per_user, per_item = log.by_user.counts, log.by_item.counts
    facts: dict[str, Any] = {
        "users": log.n_users,
        "items": log.n_items,
        "interactions": len(log),
        "density": log.density,
        "median_per_user": float(np.median(per_user)),
        "median_per_item": float(np.median(per_item)),
        "ratings": log.ratings is not None,
        "timestamps": log.timestamps is not None,
    }
    if log.timestamps is not None:
        ends = pl.Series([log.timestamps.min(), log.timestamps.max()])
        ends = ends.cast(pl.Datetime("us")) if log.times_are_dates else ends
        facts["first_time"], facts["last_time"] = ends.cast(pl.String)
    if log.categories is not None:
        facts["categories"] = log.categories["category"].n_unique()
    return facts
