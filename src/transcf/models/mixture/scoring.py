# ruff: noqa: D102  (methods of the base class are documented there)
"""Scores and lists of users by the mixture, given their histories and vectors.

Users are those of the training data or new users. Lists are exact: candidates are found in float32
(`kernels.mixture_search`) and scored in float64, so that they do not depend on which users are
ranked together.
"""

from __future__ import annotations

import threading
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from transcf.data.csr import Csr, Histories
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.kernels import Array
from transcf.kernels.ahead import Job, compile_ahead
from transcf.kernels.mixture_scores import (
    STRIP,
    PastItems,
    ScoredItems,
    ScoreParams,
    UserHistories,
    UserQueries,
    add_log_sums,
    add_terms,
    add_terms_of_users,
    read_only,
    score_pairs,
    score_users,
)
from transcf.kernels.mixture_search import CROWDED, NearestItems, find_candidates
from transcf.kernels.rows import padded
from transcf.parallel import one_blas_thread, parallel_for
from transcf.retrieval.scorer import FormView, Norms, Scorer, Scores, Source, vector_form
from transcf.retrieval.topk import ROUNDING, not_finite

if TYPE_CHECKING:
    from transcf.models.mixture.fitted import Mixture

#: Fewest and most neighbours of a past item, and neighbours of all past items in between.
_NEIGHBORS, _TABLE_SIZE = (64, 512), 2**22
#: Past items whose neighbours are found together.
_ROWS = 1024
#: Terms below this count as this: bounds stay bounds, and nothing underflows.
_LEAST_TERM = 1e-30
#: Users whose lists are made together, which bounds the memory of candidates.
_USERS = 4096
#: Longest list that is made from candidates, and candidates beyond the length of a list.
_LONGEST, _SPARE = 512, 256
#: Users who share a table of terms.
_TABLE_USERS = 2**16


class NeighborTable:
    """The nearest items b of past items p. Rows are computed when they are first needed."""

    def __init__(
        self, history: Array, items: Array, tau: float, stored: NearestItems | None = None
    ) -> None:
        everything = np.ones(len(items), dtype=bool)
        self._scorer = FormView("nearness", everything, vector_form("distance", history, items))
        self._tau, self._lock, n_items = tau, threading.Lock(), len(items)
        fewest, most = _NEIGHBORS  # more in small catalogues
        shape = n_items, min(max(fewest, min(_TABLE_SIZE // max(1, n_items), most)), n_items)
        self._arrays = stored or NearestItems(
            np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)
        )
        self._is_missing = self._arrays.rest == 0

    def with_rows(self, rows: Rows) -> NearestItems:
        """Return the table, of which at least these rows are computed."""
        with self._lock:
            missing = np.unique(rows[self._is_missing[rows]]).astype(np.int32)
            for first in range(0, len(missing), _ROWS):
                self._compute(missing[first : first + _ROWS])
        return NearestItems(*map(read_only, self._arrays))

    def _compute(self, rows: Rows) -> None:
        items, excess, rest = self._arrays
        items[rows], scores = self._scorer.top_k(rows, items.shape[1])
        distances = np.maximum(-scores.astype(np.float64), 0)
        terms = np.maximum(np.exp(-self._tau * distances), _LEAST_TERM)
        excess[rows], rest[rows] = terms - terms[:, -1:], terms[:, -1]
        self._is_missing[rows] = False


class UserScorer(Scorer):
    """Scores items for users with a history and a position each, (n, dim) float32."""

    name: str
    rankable: Mask

    def __init__(self, learned: Mixture, histories: Histories, positions: Array) -> None:
        self.learned, self.histories, self.positions = learned, histories, positions
        self.name, self.rankable = learned.name, learned.rankable

    def points(self, rows: Rows) -> UserQueries:
        """Return the translated positions of users: a point for each item of the history."""
        learned, histories = self.learned, self.histories.take(rows)
        tau, beta = learned.settings.tau, learned.settings.beta
        own = np.repeat(self.positions[rows], histories.counts, axis=0)
        points = 2 * (np.float32(tau) * learned.history[histories.items] + np.float32(beta) * own)
        offsets = -tau * learned.history_squares[histories.items] - beta * squares(own)
        offsets += learned.log_weights(histories)
        width = learned.item_points.shape[1]
        return UserQueries(
            histories.indptr, padded(points).reshape(-1, width), offsets.astype(np.float32)
        )

    def _score_block(self, users: Rows) -> Scores:
        learned = self.learned
        scores = score_users(self.points(users), learned.item_points, learned.item_offsets)
        self.add_terms(users, np.arange(scores.shape[1], dtype=np.int32), scores)
        return scores

    def add_terms(self, users: Rows, items: Rows, scores: Scores) -> None:
        """Add transitions to scores without them, (n, n_items), items in ascending order."""
        if self.learned.transitions is not None:
            add_terms(self.params, users.astype(np.int32), items.astype(np.int32), scores)

    @cached_property
    def params(self) -> ScoreParams:
        """What kernels need to score these users."""
        learned, histories = self.learned, self.histories
        logs = learned.log_weights(histories).astype(np.float64)
        return ScoreParams(
            starts=read_only(histories.indptr),
            past=read_only(histories.items),
            logs=read_only(logs),
            users=read_only(self.positions),
            items=read_only(learned.items),
            history=read_only(learned.history),
            bias=read_only(learned.bias),
            tau=float(learned.settings.tau),
            beta=float(learned.settings.beta),
            terms=learned.terms,
        )

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        return score_pairs(self.params, users.astype(np.int32), items.astype(np.int32))

    def top_k(
        self, users: Rows, k: int, *, seen: Csr | None = None, allowed: Mask | None = None
    ) -> tuple[Rows, Scores]:
        mask = self.rankable if allowed is None else allowed
        length = min(k, int(np.count_nonzero(mask)))
        has_history = self.histories.indptr[users] < self.histories.indptr[users + 1]
        lengths = squares(self.positions[users]).astype(np.float32)
        finite = self.learned.is_finite and has_history.all() and np.isfinite(lengths).all()
        if not (0 < length <= _LONGEST and finite):
            return super().top_k(users, k, seen=seen, allowed=allowed)
        items = np.full((len(users), k), UNKNOWN, dtype=np.int32)
        scores = np.full((len(users), k), np.nan, dtype=np.float32)
        hidden = seen or Csr(np.zeros(len(self.histories) + 1, np.int64), np.empty(0, np.int32), 0)
        is_crowded = np.zeros(len(users), dtype=bool)
        for first in range(0, len(users), _USERS):
            some = slice(first, first + _USERS)
            lists = (items[some], scores[some])
            is_crowded[some] = self._find(users[some], length, hidden, mask, *lists)
        if is_crowded.any():
            rest = super().top_k(users[is_crowded], k, seen=seen, allowed=allowed)
            items[is_crowded], scores[is_crowded] = rest
        return items, scores

    def _find(
        self, users: Rows, k: int, seen: Csr, allowed: Mask, items: Rows, scores: Scores
    ) -> Mask:
        """Write the best k items of users, and return which users have too many candidates."""
        histories = self.histories.take(users)
        catalogue = self.learned.catalogue(histories.items, allowed)
        counts = np.empty(len(users), np.int64)
        found = np.empty((len(users), k + _SPARE), np.int32)
        # How far scores and bounds in float32 may be from the true ones.
        steps = self.learned.history.shape[1] + 16
        added = (1 if self.learned.transitions is None else 2) * histories.counts
        size = self.size_bounds(users, histories)
        errors = (4 * ROUNDING * (steps * size + added)).astype(np.float32)
        rows = read_only(np.ascontiguousarray(users, np.int32))
        given = (self.params, catalogue, seen.indptr, seen.indices, rows, k, errors, counts, found)
        with one_blas_thread():
            parallel_for(len(users), partial(find_candidates, *given))
        is_candidate = np.arange(found.shape[1]) < counts[:, None]
        owners, candidates = np.nonzero(is_candidate)[0], found[is_candidate]
        true = self.scores(users[owners], candidates)
        order = np.lexsort((candidates, -true, owners))
        places = np.arange(len(owners)) - np.searchsorted(owners, owners)
        listed = places < k
        owners, places, best = owners[listed], places[listed], order[listed]
        items[owners, places], scores[owners, places] = candidates[best], true[best]
        return counts == CROWDED

    def size_bounds(self, users: Rows, histories: Histories) -> Array:
        """Return bounds on the size of the exponents that scores are sums of: (n,)."""
        learned, tau, beta = self.learned, self.learned.settings.tau, self.learned.settings.beta
        longest, bias = learned.reach
        past = np.sqrt(learned.history_squares[histories.items].max(initial=0))
        faded = np.abs(learned.log_weights(histories)).max(initial=0)
        away = np.sqrt(squares(self.positions[users])) + longest
        size = tau * (past + longest) ** 2 + beta * away**2 + bias + faded
        return size + (0.0 if learned.transitions is None else learned.transitions.reach)

    def _block_users(self) -> int | None:
        """Return how many users share a table of terms; None where terms would underflow."""
        return _TABLE_USERS if self.learned.has_tables else None

    def _open_block(self, users: Rows, items: Rows) -> Source:
        if not self.learned.has_tables:
            return super()._open_block(users, items)
        if not self.histories.take(users).counts.all():
            raise not_finite(self.name)
        return PairTermTable(self, users)


def compile_lists(learned: Mixture) -> None:
    """Let another process compile what scores and lists of a mixture need.

    The mixture is used for the types of its arrays only, and gets made-up neighbours.
    """
    n_items, items = len(learned.items), np.arange(len(learned.items), dtype=np.int32)[:2]
    row = np.flatnonzero(learned.known.active)[:1].astype(np.int32)  # of a user with events
    near = NearestItems(np.zeros((n_items, 1), np.int32), *np.ones((2, n_items, 1), np.float32))
    near = near._replace(rest=near.rest.reshape(-1))
    learned.neighbors = NeighborTable(learned.history, learned.items, learned.settings.tau, near)
    scorer = UserScorer(learned, learned.known.histories, learned.users)
    places, tile = np.zeros(n_items, np.int32), np.empty((1, len(items)), np.float32)
    jobs = [
        *Job.shared(lambda: scorer.top_k(row, 1), most=1),
        *Job.shared(lambda: score_users(scorer.points(row), learned.items, learned.item_offsets)),
        Job.of(add_terms_of_users, scorer.params, row, items, places, tile, 0, 0),
        *Job.shared(lambda: PairTermTable(scorer, row).fill(items, tile)),
        *Job.shared(lambda: score_pairs(scorer.params, row, items[:1])),
    ]
    compile_ahead(jobs, urgent=False)


class PairTermTable:
    """Scores of many users: terms between two items are computed once for all users."""

    def __init__(self, scorer: UserScorer, users: Rows) -> None:
        learned, self._scorer, self._users = scorer.learned, scorer, users
        histories = scorer.histories.take(users)
        self._tau, self._beta = tau, beta = learned.settings.tau, learned.settings.beta
        past, places = np.unique(histories.items, return_inverse=True)
        a, p = scorer.positions[users], learned.history[past]
        width = learned.item_points.shape[1]
        self._positions = padded(np.float32(2 * beta) * a).reshape(-1, width)
        self._past = PastItems(
            padded(np.float32(2 * tau) * p).reshape(-1, width),
            (-tau * squares(p)).astype(np.float32),
        )
        self._histories = UserHistories(
            histories.indptr,
            places.astype(np.int32),
            np.exp(learned.log_weights(histories)).astype(np.float32),
            (-beta * squares(a)).astype(np.float32),
        )
        counts = histories.counts
        self.size: Norms = scorer.size_bounds(users, histories) + np.log(counts)
        # Two products of d terms, whose roundings an exponential turns into relative ones; those of
        # the exponential and of adding up a history; and the logarithm's.
        error = 1.01 * ROUNDING * ((width + 16) * self.size + counts + 16)
        self.error: Scores = error.astype(np.float32)

    def fill(self, items: Rows, tile: Scores) -> None:
        learned, tau, beta = self._scorer.learned, self._tau, self._beta
        b = learned.items[items]
        room, lengths = (0, -len(items) % STRIP), squares(b)
        points = np.pad(padded(b).reshape(len(b), -1), (room, (0, 0)))
        item_offsets = np.pad(learned.bias[items] - beta * lengths, room).astype(np.float32)
        offsets = np.pad(-tau * lengths, room).astype(np.float32)
        np.matmul(self._positions, points[: len(items)].T, out=tile)
        scored = ScoredItems(points, offsets, item_offsets)
        with one_blas_thread():
            add_log_sums(self._histories, self._past, scored, tile)
        self._scorer.add_terms(self._users, items, tile)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        return self._scorer.scores(self._users[rows], items)


def squares(vectors: Array) -> Array:
    """Squared lengths of vectors, (n,) float64."""
    return np.square(vectors, dtype=np.float64).sum(axis=1)
