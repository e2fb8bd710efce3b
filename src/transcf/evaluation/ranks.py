"""Ranks of held-out items: among all items, or among stored candidates.

A target is ranked among the candidates that are not targets themselves; a user's targets stand in
the order of their scores. With `above` candidates scoring higher and `level` the same, the j-th
best target of a user (from 0) has the rank

    optimistic   1 + j + above
    pessimistic  1 + j + above + level
    realistic    the mean of both
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.data.split import Candidates
from transcf.errors import EvaluationError, ParameterError
from transcf.evaluation.metrics import Ranks
from transcf.kernels import ranking as kernels
from transcf.retrieval.scorer import Scorer, Scores, name_of
from transcf.retrieval.threads import share_rows
from transcf.retrieval.tiles import Block, Tiles
from transcf.retrieval.topk import Lists, hide, lists_blocks

Ties: TypeAlias = Literal["pessimistic", "realistic", "optimistic"]
Counts: TypeAlias = npt.NDArray[np.int64]

#: Share of `level` that counts against a target.
_TIE_WEIGHTS: dict[str, float] = {"pessimistic": 1.0, "realistic": 0.5, "optimistic": 0.0}


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranks, what was left out, and what the model would have recommended.

    Attributes:
        ranks: Ranks of the held-out items.
        skipped: Reasons and counts.
        lists: (n_users, k) item rows of the best items, -1 where fewer are left; None if they
            were not asked for.
    """

    ranks: Ranks
    skipped: dict[str, int] = field(default_factory=dict)
    lists: Rows | None = None


def check_ties(ties: str) -> None:
    """Raise unless it is a known way to count ties."""
    if ties not in _TIE_WEIGHTS:
        raise ParameterError(
            f"ties={ties!r} is not allowed; it must be one of {', '.join(_TIE_WEIGHTS)}."
        )


def full_ranks(
    scorer: Scorer, targets: Interactions, known: Csr, ties: Ties, *, list_length: int = 0
) -> Ranking:
    """Rank held-out items among all items that can be ranked and that the user does not know.

    Args:
        scorer: What gives the scores.
        targets: Held-out items.
        known: Items of each user that do not compete.
        ties: How equal scores count.
        list_length: How many of the best items to return as well.
    """
    check_ties(ties)
    usable, skipped = _usable_targets(scorer, targets, known)
    held = targets.select(usable).by_user
    users = np.flatnonzero(held.counts).astype(np.int32)
    _check_somebody(users, skipped)
    tiles = Tiles(scorer, scorer.rankable)
    above, level = np.zeros((2, len(held.indices)), dtype=np.int64)
    scores = np.zeros(len(held.indices), dtype=np.float32)
    lists = np.full((len(users), list_length), -1, dtype=np.int32)
    length = min(list_length, tiles.n_columns)
    for part in tiles.blocks(len(users)):
        for some in lists_blocks(part, max(1, length)):
            block = tiles.open(users[some])
            counter = _Counter(tiles, block, held, above, level, scores)
            best = Lists(tiles, block, length, known) if length else None
            for first, tile in tiles.tiles(block):
                hide(tiles, block.users, tile, first, known)
                if best is not None:
                    best.add(tile, first)
                hide(tiles, block.users, tile, first, held)
                counter.add(tile, first)
            if best is not None:
                unused = np.empty((len(block.users), length), dtype=np.float32)
                best.finish(lists[some, :length], unused)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(held.counts[users])])
    ranks = _ranks(users, indptr, scores, above, level, ties)
    return Ranking(ranks, skipped, lists if list_length else None)


def candidate_ranks(
    scorer: Scorer, targets: Interactions, candidates: Candidates, known: Csr, ties: Ties
) -> Ranking:
    """Rank held-out items among stored candidates.

    Candidates without training interactions do not compete, nor does the target itself; one that
    a file repeats competes once. (Files may name other held-out items of a user: they compete.)
    """
    check_ties(ties)
    usable, skipped = _usable_targets(scorer, targets, known)
    with_candidates = np.diff(candidates.indptr)[targets.user_rows] > 0
    _count_users(skipped, "users without candidates", targets.user_rows[usable & ~with_candidates])
    held = targets.select(usable & with_candidates)
    _check_somebody(held.user_rows, skipped)
    users, lengths = held.user_rows, np.diff(candidates.indptr)[held.user_rows]
    owner = np.repeat(np.arange(len(users)), lengths)
    starts = np.repeat(candidates.indptr[users] - np.cumsum(lengths) + lengths, lengths)
    items = candidates.items[np.arange(len(owner)) + starts]
    competes = scorer.rankable[items] & ~_contains(targets.by_user, users[owner], items)
    pairs = np.unique(np.stack([owner[competes], items[competes]]), axis=1)
    owner, items = pairs[0], pairs[1].astype(np.int32)
    target_scores = _finite(scorer, scorer.score_pairs(users, held.item_rows))
    scores = _finite(scorer, scorer.score_pairs(users[owner], items))
    above, level = np.zeros((2, len(users)), dtype=np.int64)
    indptr = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.bincount(owner, minlength=len(users)))]
    )
    kernels.count_candidates(scores, indptr, target_scores, above, level)
    distinct, counts = np.unique(users, return_counts=True)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Ranking(_ranks(distinct, offsets, target_scores, above, level, ties), skipped)


class _Counter:
    """Counts what beats the targets of a block of users while its tiles pass by."""

    def __init__(
        self, tiles: Tiles, block: Block, held: Csr, above: Counts, level: Counts, scores: Scores
    ) -> None:
        users = block.users
        # Users ascend, so that the targets of a block are one stretch.
        first, last = held.indptr[users[0]], held.indptr[users[-1] + 1]
        self._tiles, self._block = tiles, block
        self._indptr = np.append(held.indptr[users], last) - first
        self._above, self._level = above[first:last], level[first:last]
        rows = np.repeat(np.arange(len(users), dtype=np.int32), held.counts[users])
        scores[first:last] = tiles.pairs(block, rows, held.indices[first:last])
        self._scores = scores[first:last]

    def add(self, tile: Scores, first: int) -> None:
        block = self._block

        def work(rows: slice) -> None:
            kernels.count_beaters(
                tile[rows],
                first,
                self._tiles.columns,
                block.error[rows],
                block.user_vectors[rows],
                self._tiles.item_vectors,
                block.constants[rows],
                self._indptr[rows.start : rows.stop + 1],
                self._scores,
                self._above,
                self._level,
            )

        share_rows(len(tile), work)


def _ranks(
    users: Rows, indptr: Counts, scores: Scores, above: Counts, level: Counts, ties: Ties
) -> Ranks:
    """Turn counts into ranks, ascending within each user."""
    counts = np.diff(indptr)
    owner = np.repeat(np.arange(len(users)), counts)
    order = np.lexsort((-scores, owner))
    before = np.arange(len(scores)) - np.repeat(indptr[:-1], counts)
    places = 1 + before + above[order] + _TIE_WEIGHTS[ties] * level[order]
    return Ranks(users, indptr, places.astype(np.float64))


def _usable_targets(
    scorer: Scorer, targets: Interactions, known: Csr
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """(n,) which held-out events can be ranked, and why the others cannot."""
    if not len(targets):
        raise EvaluationError("There are no held-out interactions to evaluate.")
    if len(scorer.rankable) != targets.n_items:
        raise EvaluationError(
            f"{name_of(scorer)} knows {len(scorer.rankable):,} items and the split has "
            f"{targets.n_items:,}: evaluate a model on the split that it was fitted on."
        )
    skipped: dict[str, int] = {}
    rankable = scorer.rankable[targets.item_rows]
    if not rankable.all():
        skipped["held-out items without training interactions"] = int((~rankable).sum())
    has_history = known.counts[targets.user_rows] > 0
    _count_users(skipped, "users without training interactions", targets.user_rows[~has_history])
    return rankable & has_history, skipped


def _count_users(skipped: dict[str, int], reason: str, rows: Rows) -> None:
    if len(rows):
        skipped[reason] = len(np.unique(rows))


def _check_somebody(users: Rows, skipped: dict[str, int]) -> None:
    if not len(users):
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in skipped.items())
        raise EvaluationError(f"There is nobody left to evaluate ({reasons}).")


def _contains(listed: Csr, users: Rows, items: Rows) -> npt.NDArray[np.bool_]:
    """(n,) whether each item is listed for its user."""
    keys = listed.entry_rows.astype(np.int64) * listed.n_columns + listed.indices
    return np.isin(users.astype(np.int64) * listed.n_columns + items, keys)


def _finite(scorer: Scorer, scores: Scores) -> Scores:
    if not np.isfinite(scores).all():
        raise EvaluationError(
            f"{name_of(scorer)} gives NaN or infinite scores, and such scores have no order: "
            "check that its training converged."
        )
    return scores
