"""`Split`: train, validation and test with the same users and items, candidates, and files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from transcf.data.atomic import atomic_write_dir, check_free
from transcf.data.csr import Csr, offsets
from transcf.data.files import path_of
from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.report import Report
from transcf.errors import DataError, check_integer

Recipe: TypeAlias = dict[str, str | int | float | None]

_HEAD = "split.json"
_VERSION = 1
_PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Items that each user's held-out item is ranked against, in sampled protocols."""

    indptr: npt.NDArray[np.int64]  # (n_users + 1,) offsets
    items: npt.NDArray[np.int32]  # (n,) rows, in drawing order; a file may repeat an item
    source: str  # where they come from: "99 drawn, seed 0" or a file name

    def __post_init__(self) -> None:
        self.indptr.flags.writeable = False
        self.items.flags.writeable = False

    def of(self, user: int) -> npt.NDArray[np.int32]:
        """Return the candidate rows of one user row."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of one log; users and items have the same rows in all of them.

    Attributes:
        train: Training data.
        validation: Data that epochs and hyper-parameters are chosen on.
        test: Data for the final evaluation.
        candidates: Stored candidates for sampled protocols, or None.
        recipe: How the split was made (rule, seed, ...; "how" in words), for reports.
        report: Counts of what was left out or kept whole, and why.
    """

    train: Interactions
    validation: Interactions
    test: Interactions
    candidates: Candidates | None = None
    recipe: Recipe = field(default_factory=dict)
    report: Report = field(default_factory=Report)

    def __repr__(self) -> str:
        drawn = "none" if self.candidates is None else self.candidates.source
        return (
            f"Split({self.recipe.get('rule', 'custom')}: train {len(self.train):,}, validation "
            f"{len(self.validation):,}, test {len(self.test):,}, candidates {drawn})"
        )

    @property
    def how(self) -> str:
        """How the split was made, in words."""
        return str(self.recipe.get("how") or self.recipe.get("rule") or "not said")

    @cached_property
    def before_test(self) -> Interactions:
        """Train and validation together, for the refit after hyper-parameters are chosen."""
        return Interactions.joined(self.train, self.validation)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all three parts and the candidates."""
        digests = [self.train.digest, self.validation.digest, self.test.digest, ""]
        if (drawn := self.candidates) is not None:
            digests[-1] = hashlib.sha256(drawn.indptr.tobytes() + drawn.items.tobytes()).hexdigest()
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    @property
    def is_cut(self) -> bool:
        """Whether the log was cut in time: no part begins before the end of an earlier one."""
        if str(self.recipe.get("rule", "")).startswith("leave-one-out"):
            return False  # though a log with a single user looks cut
        times = [part.timestamps for part in (self.train, self.validation, self.test)]
        if any(part is None for part in times):
            return False
        filled = [part for part in times if part is not None and len(part)]
        return all(one.max() < other.min() for one, other in pairwise(filled))

    def known_items(self, part: str) -> Csr:
        """Return the items that count as seen when `part` ("validation" or "test") is ranked.

        At test time the validation items are seen too.
        """
        return (self.train if part == "validation" else self.before_test).by_user

    def touched_items(self) -> Csr:
        """Return the items of each user in any part."""
        return Interactions.joined(self.train, self.validation, self.test).by_user

    def save(self, folder: str | Path) -> Path:
        """Write the split atomically to a folder of Parquet files.

        A folder that holds a saved split is replaced; any other that is not empty is refused.
        """
        folder = path_of(folder)
        check_free(folder, is_saved_split, "a saved split")
        with atomic_write_dir(folder) as unfinished:
            _write(self, unfinished)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Split:
        """Read a split that `save` wrote."""
        folder = path_of(folder)
        if not is_saved_split(folder):
            raise DataError(f"{folder} is not a saved split: it has no {_HEAD}.")
        try:
            head = json.loads((folder / _HEAD).read_text(encoding="utf-8"))
            if head["version"] == _VERSION:
                return _read(folder, head)
        except (PolarsError, OSError, KeyError, ValueError, TypeError) as problem:
            raise DataError(
                f"{folder} is a damaged split ({problem}): split the log again."
            ) from problem
        raise DataError(
            f"{folder} is a split of version {head['version']}, this library reads {_VERSION}: "
            "save it again."
        )


def draw_candidates(split: Split, n: int = 99, seed: int = 0) -> Split:
    """Draw items that each user's held-out item is ranked against.

    They are drawn once for each user with a held-out event, without repeats, from the items
    with training interactions that the user never touched in any part. The draw depends on the
    seed and on ids only. Users for whom fewer than `n` items are left get all of them, and the
    report counts them.

    Args:
        split: Any split.
        n: Candidates for each user.
        seed: Seed of the draw.

    Example:
        >>> from transcf import leave_one_out, synthesize
        >>> draw_candidates(leave_one_out(synthesize()), n=99).candidates.of(0).shape
        (99,)
    """
    from transcf.kernels.evaluation import draw_unseen

    n, seed = check_integer("n", n, 1), check_integer("seed", seed)
    held_out = (split.validation.by_user.counts + split.test.by_user.counts) > 0
    pool = np.unique(split.train.item_rows)
    touched = split.touched_items()
    users = np.flatnonzero(held_out).astype(np.int32)
    lengths, items = draw_unseen(
        users, touched.indptr, touched.indices, pool, split.train.n_items, n, seed
    )
    fewer = (lengths[users] < n).sum()
    counts = {"users": len(users), "candidates": len(items), "users_with_fewer": fewer}
    report = split.report.then("draw candidates", **counts)
    recipe = {**split.recipe, "candidates": n, "candidates_seed": seed}
    candidates = Candidates(offsets(lengths), items, f"{n} drawn, seed {seed}")
    return replace(split, candidates=candidates, recipe=recipe, report=report)


def is_saved_split(folder: Path) -> bool:
    """Return whether `Split.save` wrote this folder."""
    return (folder / _HEAD).is_file()


def _write(split: Split, folder: Path) -> None:
    train = split.train
    for name in _PARTS:
        part: Interactions = getattr(split, name)
        frame = part.to_frame().with_columns(position=pl.Series(part.positions))
        frame.write_parquet(folder / f"{name}.parquet")
    tables = {
        "categories": train.categories,
        "users": train.users.series.to_frame(),
        "items": train.items.series.to_frame(),
    }
    if (candidates := split.candidates) is not None:
        owners = np.repeat(np.arange(train.n_users), np.diff(candidates.indptr))
        ids = {"user_id": train.users.ids(owners), "item_id": train.items.ids(candidates.items)}
        tables["candidates"] = pl.DataFrame(ids)
    for name, table in tables.items():
        if table is not None:
            table.write_parquet(folder / f"{name}.parquet")
    head = {
        "version": _VERSION,
        "recipe": split.recipe,
        "report": split.report.to_list(),
        "log_report": train.report.to_list(),
        "times_are_dates": train.times_are_dates,
        "candidates": None if candidates is None else candidates.source,
    }
    (folder / _HEAD).write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")


def _read(folder: Path, head: dict[str, Any]) -> Split:
    def table(name: str) -> pl.DataFrame:
        return pl.read_parquet(folder / f"{name}.parquet", glob=False)

    users, items = IdMap(table("users")["id"]), IdMap(table("items")["id"])
    has_categories = (folder / "categories.parquet").exists()
    shared: dict[str, Any] = {
        "categories": table("categories") if has_categories else None,
        "times_are_dates": bool(head["times_are_dates"]),
        "report": Report.from_list(head["log_report"]),
    }
    parts = {}
    for name in _PARTS:
        frame = table(name)
        rows = _rows(frame, users, items)
        parts[name] = Interactions.from_frame(frame, users, items, rows, **shared)
    candidates = None
    if head["candidates"] is not None:
        owners, chosen = _rows(table("candidates"), users, items)
        indptr = offsets(np.bincount(owners, minlength=len(users)))
        candidates = Candidates(indptr, chosen, head["candidates"])
    report = Report.from_list(head["report"])
    return Split(**parts, candidates=candidates, recipe=head["recipe"], report=report)


def _rows(frame: pl.DataFrame, users: IdMap, items: IdMap) -> tuple[Rows, Rows]:
    """Return the rows of a table `user_id, item_id`, which has to be in the order of users."""
    owners = users.rows_of_column(frame["user_id"])
    columns = items.rows_of_column(frame["item_id"])
    if (owners == UNKNOWN).any() or (columns == UNKNOWN).any():
        raise ValueError("a table names ids that are not among its users and items")
    if (np.diff(owners) < 0).any():
        raise ValueError("a table is not in the order of its users")
    return owners, columns
