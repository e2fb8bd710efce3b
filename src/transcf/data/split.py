"""`Split`: the same users and items in train, validation and test, with stored candidates."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.data.paths import path_of
from transcf.data.report import Report

Recipe: TypeAlias = dict[str, str | int | float | None]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Items that each user's held-out item is ranked against, in sampled protocols.

    Attributes:
        indptr: (n_users + 1,) int64 offsets.
        items: (n,) int32 item rows, in drawing order; a file may repeat an item.
        source: Where they come from ("drawn, seed 0" or a file name).
    """

    indptr: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    source: str

    def __post_init__(self) -> None:
        """Freeze the arrays: candidates are part of the split."""
        self.indptr.flags.writeable = False
        self.items.flags.writeable = False

    def of(self, user: int) -> npt.NDArray[np.int32]:
        """Return the candidate rows of one user row."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of one log; users and items have the same rows in all of them.

    Attributes:
        train: What models learn from.
        validation: What epochs and settings are chosen on.
        test: What is reported, once.
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
        """Sizes of the parts."""
        drawn = "none" if self.candidates is None else self.candidates.source
        return (
            f"Split({self.recipe.get('rule', 'custom')}: train {len(self.train):,}, validation "
            f"{len(self.validation):,}, test {len(self.test):,}, candidates {drawn})"
        )

    @property
    def how(self) -> str:
        """How the split was made, in words.

        Example:
            >>> from transcf import leave_one_out, synthesize
            >>> leave_one_out(synthesize()).how
            'the newest event of each user for test, the one before it for validation'
        """
        return str(self.recipe.get("how") or self.recipe.get("rule") or "not said")

    @property
    def before_test(self) -> Interactions:
        """Train and validation together: what a model learns from once all is chosen.

        Example:
            >>> from transcf import EASE, evaluate, synthesize, temporal_cut
            >>> split = temporal_cut(synthesize())
            >>> evaluate(EASE().fit(split.before_test), split).protocol
            'forward'
        """
        return self._before_test

    @cached_property
    def _before_test(self) -> Interactions:
        return Interactions.joined(self.train, self.validation)

    @cached_property
    def digest(self) -> str:
        """What tells it from other splits: all three parts and the candidates."""
        from transcf.data.digests import digest_of_candidates

        parts = [part.digest for part in (self.train, self.validation, self.test)]
        text = " ".join([*parts, digest_of_candidates(self.candidates)])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def is_cut(self) -> bool:
        """Whether the log was cut in time: no part has an event before the end of an earlier one.

        Example:
            >>> from transcf import leave_one_out, synthesize
            >>> leave_one_out(synthesize()).is_cut
            False
        """
        if str(self.recipe.get("rule", "")).startswith("leave-one-out"):
            return False  # though a log with a single user looks cut
        ends: list[int] = []
        for part in (self.train, self.validation, self.test):
            if part.timestamps is None:
                return False
            if len(part):
                if ends and int(part.timestamps.min()) <= ends[-1]:
                    return False
                ends.append(int(part.timestamps.max()))
        return True

    def known_items(self, part: str) -> Csr:
        """Items that count as seen when `part` ("validation" or "test") is ranked.

        At test time the validation items are seen too.
        """
        if part == "validation":
            return self.train.by_user
        return self.before_test.by_user

    def touched_items(self) -> Csr:
        """Items of each user in any part."""
        return _union(self.train, self.validation, self.test)

    def save(self, folder: str | Path) -> Path:
        """Write the split to a folder of Parquet files, all or nothing.

        A folder that holds a saved split is replaced; any other that is not empty is refused.
        """
        from transcf.data.storage import save_split

        return save_split(self, path_of(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Split:
        """Read a split that `save` wrote."""
        from transcf.data.storage import load_saved_split

        return load_saved_split(path_of(folder))


def _union(*parts: Interactions) -> Csr:
    """Items of each user in some disjoint parts."""
    total = parts[0].by_user.to_scipy()
    for part in parts[1:]:
        total = total + part.by_user.to_scipy()
    total.sort_indices()
    return Csr(total.indptr.astype(np.int64), total.indices.astype(np.int32), parts[0].n_items)
