"""Ranks of held-out items, in bounded memory.

A user's targets are sorted by score; the j-th of them (from 0) has rank `1 + j + b`, b being the
number of candidates, other targets aside, that beat it. What a tie means is the caller's choice:

- optimistic: a candidate beats a target by a higher score only;
- pessimistic: an equal score beats it too (a model that scores everything alike ranks last);
- realistic: the mean of the two ranks, which may end in a half.

A `Task` says what is ranked. It is made once for a split and used for every model and epoch:

- A held-out item without training interactions cannot be ranked by any model: skipped, counted.
- A held-out item that the user is already known to have touched is skipped and counted.
- A user without training interactions, or with nothing to rank against, is skipped and counted.
- Full ranking: against every item with training interactions that the user has not touched
  (at test time validation items count as touched).
- Sampled ranking: against the user's stored candidates, each distinct item once, without the
  items that have no training interactions and without the user's targets. What else the draw
  holds stays: a test target may meet the user's own validation item among its candidates, as it
  does in the authors' files and in the figures that are known for this protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr, offsets
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.data.report import counted
from transcf.data.split import Candidates
from transcf.errors import EvaluationError
from transcf.evaluation.metrics import Counts, Ranks
from transcf.kernels.evaluation import count_better, count_better_candidates, list_doubts
from transcf.retrieval.scorer import BLOCK_BYTES, Scorer, Scores, Source
from transcf.retrieval.topk import BestLists, ProductSource, Tiles, not_finite

Ties: TypeAlias = Literal["pessimistic", "realistic", "optimistic"]
#: Rows, columns and targets of scores that are too close to a target.
_Doubts: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]

NO_HISTORY = "users without training interactions"
COLD_TARGET = "targets without training interactions"
KNOWN_TARGET = "targets the user already touched"
NO_CANDIDATES = "users without candidates"

#: Which users a sample has does not depend on the seed of a model.
_SAMPLE_SEED = 0
#: Bytes that one scored candidate takes: user, item, score and places in between.
_PAIR_BYTES = 32
#: Scores that numpy compares with targets at once.
_FEW = 2**22
#: Doubtful scores that are listed together (a single user may have more).
_DOUBTS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class Task:
    """Held-out items to rank."""

    users: Rows  # (n,) evaluated user rows, ascending
    targets: Csr  # held-out items that can be ranked, one row for each entry of `users`
    known: Csr  # items of each user row (all users) that do not take part in full ranking
    candidates: Csr | None  # in sampled ranking: items to rank against, for each of `users`
    against: Counts  # (n,) how many items, targets aside, there are to rank against
    skipped: dict[str, int]  # what was left out, and how many of it

    def of_sample(self, count: int) -> Task:
        """Return the task of so many of the users, always the same ones."""
        if count >= len(self.users):
            return self
        some = sample_of(len(self.users), count)
        candidates = None if self.candidates is None else self.candidates.take(some)
        return replace(
            self,
            users=self.users[some],
            targets=self.targets.take(some),
            candidates=candidates,
            against=self.against[some],
        )


def sample_of(size: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` of `size` places, ascending, always the same ones; all if there are fewer."""
    return np.sort(np.random.default_rng(_SAMPLE_SEED).permutation(size)[:count])


def ranking_task(
    held_out: Csr, known: Csr, rankable: Mask, trained: Mask, candidates: Candidates | None = None
) -> Task:
    """Find what can be ranked: held-out items of trained users, without known ones.

    `known` are the items of each user row that count as touched; `trained`, (n_users,), are the
    users with training interactions.
    """
    n_items, n_users = max(1, held_out.n_columns), held_out.n_rows
    learned = _keys(held_out)[trained[held_out.entry_rows]]
    warm = learned[rankable[learned % n_items]]
    touched = _keys(known)  # ascending, so that nothing has to be sorted
    is_new = np.searchsorted(touched, warm) == np.searchsorted(touched, warm, side="right")
    fresh = warm[is_new]
    against = None
    if candidates is None:
        taken = np.bincount(known.entry_rows[rankable[known.indices]], minlength=n_users)
        left = int(rankable.sum()) - taken - np.bincount(fresh // n_items, minlength=n_users)
    else:
        if len(candidates.indptr) != n_users + 1:
            raise EvaluationError(
                f"The candidates ({candidates.source}) are for "
                f"{counted(len(candidates.indptr) - 1, 'user')} and the held-out items for "
                f"{n_users:,}: use the candidates of the same split."
            )
        drawn = Csr(candidates.indptr, candidates.items, n_items)
        against = np.unique(_keys(drawn)[rankable[drawn.indices]])
        against = np.setdiff1d(against, fresh, assume_unique=True)
        left = np.bincount(against // n_items, minlength=n_users)
    pairs = fresh[left[fresh // n_items] > 0]
    users = np.unique(pairs // n_items).astype(np.int32)
    skipped = {
        NO_HISTORY: int(((held_out.counts > 0) & ~trained).sum()),
        COLD_TARGET: len(learned) - len(warm),
        KNOWN_TARGET: len(warm) - len(fresh),
        NO_CANDIDATES: len(np.unique(fresh // n_items)) - len(users),
    }
    return Task(
        users,
        _by_user(pairs, users, n_users, n_items),
        known,
        None if against is None else _by_user(against, users, n_users, n_items),
        left[users],
        {reason: count for reason, count in skipped.items() if count},
    )


def _keys(pairs: Csr) -> Counts:
    """One ascending number for each (row, column), if columns ascend."""
    keys: Counts = pairs.entry_rows.astype(np.int64) * pairs.n_columns + pairs.indices
    return keys


def _by_user(pairs: Counts, users: Rows, n_users: int, n_items: int) -> Csr:
    """Entries of some users, one row for each of them."""
    owners, items = np.divmod(pairs, n_items)
    indptr = offsets(np.bincount(owners, minlength=n_users))
    return Csr(indptr, items.astype(np.int32), n_items).take(users)


def rank(scorer: Scorer, task: Task, ties: Ties, list_length: int = 0) -> Ranks:
    """Rank the targets of a task; in full ranking, return lists of `list_length` as well.

    Raises:
        EvaluationError: No user is left to evaluate, or a score is NaN or infinite.
    """
    if not len(task.users):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in task.skipped.items())
        raise EvaluationError(
            f"There is no user left to evaluate ({reasons or 'no held-out items'}): hold out other "
            "interactions, or train on more."
        )
    n_targets = len(task.targets.indices)
    scores, lists = np.empty(n_targets, dtype=np.float32), None
    above, at_least = np.zeros(n_targets, dtype=np.int64), np.zeros(n_targets, dtype=np.int64)
    if task.candidates is None:
        lists = _count_all(scorer, task, list_length, scores, above, at_least)
    else:
        _count_candidates(scorer, task, task.candidates, scores, above, at_least)
    # Targets by descending score, each behind those before it.
    owners = task.targets.entry_rows
    order = np.lexsort((-scores, owners))
    place = np.arange(n_targets) - task.targets.indptr[owners]
    optimistic, pessimistic = 1 + place + above[order], 1 + place + at_least[order]
    ranks = {
        "optimistic": optimistic.astype(np.float64),
        "pessimistic": pessimistic.astype(np.float64),
        "realistic": (optimistic + pessimistic) / 2,
    }[ties]
    return Ranks(
        task.users,
        task.targets.indptr,
        ranks,
        beaten_by=(above[order] + at_least[order]) / 2,
        against=task.against,
        skipped=task.skipped,
        lists=lists if list_length else None,
    )


def _count_all(
    scorer: Scorer, task: Task, list_length: int, scores: Scores, above: Counts, at_least: Counts
) -> Rows:
    """Score targets and count what beats them among all items; return the lists of the users."""
    tiles = Tiles(scorer, scorer.rankable)
    length = min(list_length, tiles.n_columns)
    lists = np.full((len(task.users), length), UNKNOWN, dtype=np.int32)
    for part in tiles.blocks(len(task.users), length):
        source = tiles.open(task.users[part])
        targets, own = _rows(task.targets, part)
        scores[own] = levels = source.pairs(targets.entry_rows, targets.indices)
        if isinstance(source, ProductSource):
            levels = levels - source.constants[targets.entry_rows]
        best = BestLists(tiles, source, task.users[part], length, task.known)
        beaten = _Beaten(tiles, source, targets, scores[own], levels, above[own], at_least[own])
        tiles.scan(source, best.look, beaten.look)
        best.finish(lists[part, :length], np.empty((len(source.error), length), np.float32))
    return lists


@dataclass(frozen=True, eq=False)
class _Beaten:
    """Counts how many scores beat the targets of a block of users, tile by tile."""

    tiles: Tiles
    source: Source
    targets: Csr  # a row for each user of the block
    scores: Scores  # (n_targets,) their true scores
    levels: Scores  # (n_targets,) the same as tiles have them: products lack constants
    above: Counts  # (n_targets,) to which the number of scores above each target is added
    at_least: Counts  # (n_targets,) to which the number of scores not below it is added

    def look(self, tile: Scores, first: int, rows: slice) -> None:
        """Hide the targets in some rows of a tile, and count what beats them.

        What is within the tile's error of a target is scored again.
        """
        tiles, indptr = self.tiles, self.targets.indptr[rows.start : rows.stop + 1]
        places = np.arange(rows.start, rows.stop, dtype=np.int32)
        tiles.hide(tile, first, places, self.targets)
        few = tiles.is_small and (indptr[-1] - indptr[0]) * tile.shape[1] <= _FEW
        count = self._count_few if few else self._count
        for found, columns, targets in count(tile, self.source.error[rows], indptr):
            scores = self.source.pairs(places[found], tiles.columns[first + columns])
            np.add.at(self.above, targets, scores > self.scores[targets])
            np.add.at(self.at_least, targets, scores >= self.scores[targets])

    def _count(self, tile: Scores, error: Scores, indptr: Counts) -> Iterator[_Doubts]:
        """Count what surely beats targets; yields rows, columns and targets of the rest."""
        doubts = np.zeros(len(self.scores), dtype=np.int64)
        count_better(tile, error, indptr, self.levels, self.above, self.at_least, doubts)
        own = doubts[indptr[0] : indptr[-1]]
        if not own.any():
            return
        ends = offsets(np.add.reduceat(own, indptr[:-1] - indptr[0]))
        for part in _slices_by_size(ends, _DOUBTS_AT_ONCE):
            size = ends[part.stop] - ends[part.start]
            found, columns = np.empty((2, size), np.int32)
            targets = np.empty(size, np.int64)
            listed = (indptr[part.start : part.stop + 1], self.levels, doubts)
            list_doubts(tile[part], error[part], *listed, found, columns, targets)
            yield found + np.int32(part.start), columns, targets

    def _count_few(self, tile: Scores, error: Scores, indptr: Counts) -> Iterator[_Doubts]:
        """`_count` by numpy, for small catalogues: kernels take seconds to compile."""
        owners, own = np.repeat(np.arange(len(tile)), np.diff(indptr)), slice(indptr[0], indptr[-1])
        lines, doubt = tile[owners], error[owners]
        is_above = lines > (self.levels[own] + doubt)[:, None]
        is_level = lines >= (self.levels[own] - doubt)[:, None]
        unsure = is_level & ~is_above & (doubt > 0)[:, None]
        self.above[own] += is_above.sum(axis=1)
        self.at_least[own] += (is_level & ~unsure).sum(axis=1)
        places, columns = np.nonzero(unsure)
        if len(places):
            yield owners[places], columns, places + own.start


def _count_candidates(
    scorer: Scorer, task: Task, candidates: Csr, scores: Scores, above: Counts, at_least: Counts
) -> None:
    """Score targets and count what beats them among the candidates."""
    for part in _slices_by_size(candidates.indptr, BLOCK_BYTES // _PAIR_BYTES):
        (targets, own), (against, _) = _rows(task.targets, part), _rows(candidates, part)
        users = task.users[part]
        # One call for both: whatever a model does in blocks, they are scored alike.
        pair_users = np.concatenate([users[targets.entry_rows], users[against.entry_rows]])
        pair_items = np.concatenate([targets.indices, against.indices])
        values = np.asarray(scorer.scores(pair_users, pair_items), dtype=np.float32)
        if not np.isfinite(values).all():
            raise not_finite(scorer.name)
        n_own = len(targets.indices)
        scores[own] = values[:n_own]
        of_both = (against.indptr, values[n_own:], targets.indptr, scores[own])
        count_better_candidates(*of_both, above[own], at_least[own])


def _rows(matrix: Csr, part: slice) -> tuple[Csr, slice]:
    """Some rows of a matrix, and where their entries are in it."""
    own = slice(matrix.indptr[part.start], matrix.indptr[part.stop])
    return matrix.between(part.start, part.stop), own


def _slices_by_size(indptr: Counts, most: int) -> list[slice]:
    """Cut rows into slices of at most so many entries (a single row may have more)."""
    slices, start = [], 0
    while start < len(indptr) - 1:
        limit = indptr[start] + most
        stop = max(start + 1, int(np.searchsorted(indptr, limit, side="right")) - 1)
        slices.append(slice(start, stop))
        start = stop
    return slices
