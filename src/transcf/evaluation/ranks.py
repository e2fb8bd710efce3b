"""Ranks of held-out items, in bounded memory.

A user's targets are sorted by score; the j-th of them (from 0) has rank `1 + j + b`, b being the
number of candidates, other targets aside, that beat it. What a tie means is the caller's choice:

- optimistic: a candidate beats a target by a higher score only;
- pessimistic: an equal score beats it too (a model that scores everything alike ranks last);
- realistic: the mean of the two ranks, which may end in a half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Interactions, Mask
from transcf.data.split import Candidates
from transcf.errors import EvaluationError, ParameterError, is_word, shown
from transcf.evaluation.metrics import Floats, Ranks
from transcf.evaluation.tasks import Task, full_task, sampled_task
from transcf.kernels.ranking import (
    count_better,
    count_better_candidates,
    count_surely_better,
    list_doubts,
)
from transcf.retrieval.scorer import BLOCK_BYTES, Scorer, Scores
from transcf.retrieval.topk import BestLists, Block, Look, Tiles, lists_blocks, not_finite

Ties: TypeAlias = Literal["pessimistic", "realistic", "optimistic"]
Counts: TypeAlias = npt.NDArray[np.int64]

#: Bytes that one scored candidate takes: user, item, score and places in between.
_PAIR_BYTES = 32
#: Users whose doubtful scores are listed together, which bounds the memory that they take.
_ROWS_IN_DOUBT = 1024


@dataclass(frozen=True, eq=False)
class Ranking:
    """What ranking the held-out items gave.

    Attributes:
        ranks: Ranks of the targets of each evaluated user.
        beaten_by: (n_targets,) candidates, other targets aside, that come before each target;
            equal scores count half, whatever the rule for ties.
        against: (n_users,) how many such candidates each evaluated user has.
        skipped: What was left out, and how many of it.
        lists: (n_users, length) best items of each evaluated user, -1 where there are no more;
            None where none were asked for.
    """

    ranks: Ranks
    beaten_by: Floats
    against: Counts
    skipped: dict[str, int]
    lists: Rows | None = None


def check_ties(ties: str) -> None:
    """Raise a `ParameterError` unless it is a rule for ties."""
    if not is_word(ties, get_args(Ties)):
        allowed = ", ".join(map(repr, get_args(Ties)))
        raise ParameterError(f"ties={shown(ties)} is not allowed; it must be one of {allowed}.")


def full_ranks(
    scorer: Scorer,
    held_out: Interactions,
    known: Csr,
    ties: Ties,
    *,
    trained: Mask | None = None,
    list_length: int = 0,
) -> Ranking:
    """Rank held-out items among all items that their users have not touched.

    Args:
        scorer: What gives the scores.
        held_out: Held-out interactions.
        known: Items of each user row that count as touched.
        ties: How to count equal scores.
        trained: (n_users,) users with training interactions, the only ones that are ranked; None
            if `known` holds the training items.
        list_length: Length of the lists to return beside the ranks.

    Raises:
        EvaluationError: Nobody is left to evaluate, or a score is NaN or infinite.
    """
    trained = known.counts > 0 if trained is None else trained
    task = full_task(held_out.by_user, known, scorer.rankable, trained)
    return rank(scorer, task, ties, list_length)


def candidate_ranks(
    scorer: Scorer,
    held_out: Interactions,
    candidates: Candidates,
    known: Csr,
    ties: Ties,
    *,
    trained: Mask | None = None,
) -> Ranking:
    """Rank held-out items among the stored candidates of their users.

    Args:
        scorer: What gives the scores.
        held_out: Held-out interactions.
        candidates: Stored candidates of each user row.
        known: Items of each user row that count as touched.
        ties: How to count equal scores.
        trained: As for `full_ranks`.

    Raises:
        EvaluationError: Nobody is left to evaluate, or a score is NaN or infinite.
    """
    trained = known.counts > 0 if trained is None else trained
    task = sampled_task(held_out.by_user, candidates, known, scorer.rankable, trained)
    return rank(scorer, task, ties)


def rank(scorer: Scorer, task: Task, ties: Ties, list_length: int = 0) -> Ranking:
    """Rank the targets of a task; see `full_ranks` and `candidate_ranks`."""
    check_ties(ties)
    if not len(task.users):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in task.skipped.items())
        raise EvaluationError(
            f"There is nobody left to evaluate ({reasons or 'no held-out items'}): hold out other "
            "interactions, or train on more."
        )
    if task.candidates is not None:
        return _rank_candidates(scorer, task, task.candidates, ties)
    return _rank_all(scorer, task, ties, list_length)


def _rank_all(scorer: Scorer, task: Task, ties: Ties, list_length: int) -> Ranking:
    tiles = Tiles(scorer, scorer.rankable)
    n_targets = len(task.targets.indices)
    above, at_least = np.zeros(n_targets, dtype=np.int64), np.zeros(n_targets, dtype=np.int64)
    scores = np.empty(n_targets, dtype=np.float32)
    length = min(list_length, tiles.n_columns)
    lists = np.full((len(task.users), length), UNKNOWN, dtype=np.int32)
    for whole in tiles.blocks(len(task.users)):
        for part in lists_blocks(whole, length):
            block = tiles.open(task.users[part])
            targets = _rows(task.targets, part)
            own = slice(task.targets.indptr[part.start], task.targets.indptr[part.stop])
            scores[own] = tiles.pairs(block, targets.entry_rows, targets.indices)
            best = BestLists(tiles, block, length, task.known)
            beaten = _Beaten(tiles, block, targets, scores[own], above[own], at_least[own])
            tiles.scan(block, _both(best.look, beaten.look))
            best.finish(lists[part, :length], np.empty((len(block.users), length), np.float32))
    return _ranking(task, scores, above, at_least, ties, lists if list_length else None)


class _Beaten:
    """How many scores beat the targets of a block of users, while its tiles pass by.

    Args:
        tiles: Where the tiles come from.
        block: The users.
        targets: Held-out items, a row for each user of the block.
        scores: (n_targets,) their true scores.
        above: (n_targets,) to be added to: scores above each target.
        at_least: (n_targets,) to be added to: scores not below each target.
    """

    def __init__(
        self,
        tiles: Tiles,
        block: Block,
        targets: Csr,
        scores: Scores,
        above: Counts,
        at_least: Counts,
    ) -> None:
        """Keep what is counted."""
        self._tiles, self._block, self._targets = tiles, block, targets
        self._scores, self._above, self._at_least = scores, above, at_least

    def look(self, tile: Scores, first: int, rows: slice) -> None:
        """Take targets out of some rows of a tile, and count what beats them."""
        tiles, block, targets = self._tiles, self._block, self._targets
        places = np.arange(rows.start, rows.stop, dtype=np.int32)
        tiles.hide(tile, first, places, targets)
        if block.source is not None and block.error.any():
            for start in range(rows.start, rows.stop, _ROWS_IN_DOUBT):
                some = slice(start, min(start + _ROWS_IN_DOUBT, rows.stop))
                self._look_twice(tile[start - rows.start :][:_ROWS_IN_DOUBT], first, some)
            return
        count_better(
            tile,
            first,
            tiles.columns,
            block.error[rows],
            block.user_vectors[rows],
            tiles.item_vectors,
            block.constants[rows],
            targets.indptr[rows.start : rows.stop + 1],
            self._scores,
            self._above,
            self._at_least,
        )

    def _look_twice(self, tile: Scores, first: int, rows: slice) -> None:
        """Count what surely beats targets, and score the rest again."""
        tiles, block = self._tiles, self._block
        counted = (tile, block.error[rows], self._targets.indptr[rows.start : rows.stop + 1])
        doubts = count_surely_better(*counted, self._scores, self._above, self._at_least)
        if not doubts:
            return
        places, columns, targets = list_doubts(*counted, self._scores, doubts)
        items = tiles.columns[first + columns]
        scores = tiles.pairs(block, places + np.int32(rows.start), items)
        np.add.at(self._above, targets, scores > self._scores[targets])
        np.add.at(self._at_least, targets, scores >= self._scores[targets])


def _both(one: Look, other: Look) -> Look:
    """Look in two ways, one after the other."""

    def look(tile: Scores, first: int, rows: slice) -> None:
        one(tile, first, rows)
        other(tile, first, rows)

    return look


def _rank_candidates(scorer: Scorer, task: Task, candidates: Csr, ties: Ties) -> Ranking:
    n_targets = len(task.targets.indices)
    scores = np.empty(n_targets, dtype=np.float32)
    above, at_least = np.zeros(n_targets, dtype=np.int64), np.zeros(n_targets, dtype=np.int64)
    for part in _slices_by_size(candidates, BLOCK_BYTES // _PAIR_BYTES):
        targets, against = _rows(task.targets, part), _rows(candidates, part)
        own = slice(task.targets.indptr[part.start], task.targets.indptr[part.stop])
        users = task.users[part]
        # One call for both: whatever a model does in blocks, they are scored alike.
        pair_users = np.concatenate([users[targets.entry_rows], users[against.entry_rows]])
        pair_items = np.concatenate([targets.indices, against.indices])
        values = np.asarray(scorer.scores(pair_users, pair_items), dtype=np.float32)
        if not np.isfinite(values).all():
            raise not_finite(scorer.name)
        scores[own] = values[: len(targets.indices)]
        count_better_candidates(
            against.indptr,
            values[len(targets.indices) :],
            targets.indptr,
            scores[own],
            above[own],
            at_least[own],
        )
    return _ranking(task, scores, above, at_least, ties)


def _ranking(
    task: Task,
    scores: Scores,
    above: Counts,
    at_least: Counts,
    ties: Ties,
    lists: Rows | None = None,
) -> Ranking:
    """Turn counts into ranks: targets by descending score, each behind those before it."""
    owners = task.targets.entry_rows
    order = np.lexsort((-scores, owners))
    place = np.arange(len(order)) - task.targets.indptr[owners]
    optimistic, pessimistic = 1 + place + above[order], 1 + place + at_least[order]
    ranks = {
        "optimistic": optimistic.astype(np.float64),
        "pessimistic": pessimistic.astype(np.float64),
        "realistic": (optimistic + pessimistic) / 2,
    }[ties]
    beaten_by = (above[order] + at_least[order]) / 2
    ranked = Ranks(task.users, task.targets.indptr, ranks)
    return Ranking(ranked, beaten_by, task.against, task.skipped, lists)


def _rows(matrix: Csr, part: slice) -> Csr:
    """Some rows of a matrix, as a matrix."""
    indptr = matrix.indptr[part.start : part.stop + 1]
    return Csr(indptr - indptr[0], matrix.indices[indptr[0] : indptr[-1]], matrix.n_columns)


def _slices_by_size(matrix: Csr, most: int) -> list[slice]:
    """Cut rows into slices of at most so many entries (a single row may have more)."""
    slices, start = [], 0
    while start < matrix.n_rows:
        limit = matrix.indptr[start] + most
        stop = max(start + 1, int(np.searchsorted(matrix.indptr, limit, side="right")) - 1)
        slices.append(slice(start, stop))
        start = stop
    return slices
