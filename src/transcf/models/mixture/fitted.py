# ruff: noqa: D102  (methods of the base class are documented there)
"""The fitted mixture: vectors of users, of items, and of items in a history."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions, Mask
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.kernels.mixture_context import REACH
from transcf.kernels.mixture_scores import SparseTerms, read_only
from transcf.kernels.mixture_search import Catalogue, NearestItems
from transcf.kernels.rows import padded, padded_width
from transcf.models.explain import Contributions, Remarks
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.mixture.scoring import NeighborTable, UserScorer, squares
from transcf.models.mixture.training import TINY, MixtureSettings
from transcf.models.mixture.transitions import Transitions, log_partitions, no_terms
from transcf.models.transcf.fitted import grow
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.retrieval.scorer import FormView, Scorer, Scores, nearness_form
from transcf.retrieval.sums import Queries, SumForm

#: What an effect is, after "An effect is".
SHARE = "the past item's share in the score, which is the logarithm of a sum over the history"

#: Names in files of the nearest items and of what they add to scores.
_NEIGHBORS = ("neighbor_items", "neighbor_excess", "neighbor_rest")
#: Items of the largest catalogue whose nearest items are stored; it takes 30 s to compute them.
_MOST_ITEMS = 2**17
#: Exponents below minus this would underflow in float32.
_LARGEST_EXPONENT = 80


class Mixture(FittedScorer):
    """The fitted mixture: vectors, and how they score.

    Users are a, (n_users, dim), or None for the means of contexts; items b, (n_items, dim); the
    history p, (n_items, dim), the same array as b where they are tied; and the bias c, (n_items,):
    all float32.
    """

    def __init__(
        self,
        known: TrainingData,
        settings: MixtureSettings,
        *,
        users: Array | None,
        items: Array,
        history: Array,
        bias: Array,
    ) -> None:
        super().__init__(known, "TransCF-mixture")
        self.settings = settings
        self.transitions: Transitions | None = None
        self._learned_users, self.items, self.history, self.bias = users, items, history, bias
        self._stored: NearestItems | None = None

    @classmethod
    def from_arrays(cls, arrays: Arrays, known: TrainingData, settings: MixtureSettings) -> Mixture:
        """Check the arrays of a file or of a training, and put them together."""
        n_items, dim = len(known.items), settings.dim
        items = checked(arrays, "item_vectors", np.float32, (n_items, dim))
        history = items
        if not settings.tie_item_vectors:
            history = checked(arrays, "history_vectors", np.float32, (n_items, dim))
        bias = checked(arrays, "item_bias", np.float32, (n_items,))
        users = None
        if "user_vectors" in arrays or settings.user_vectors == "learned" or not known.timed:
            users = checked(arrays, "user_vectors", np.float32, (len(known.users), dim))
        made = cls(known, settings, users=users, items=items, history=history, bias=bias)
        made = made._with_single_events_placed()
        made.transitions = Transitions.from_arrays(arrays, n_items)
        if _NEIGHBORS[0] in arrays:
            shape = (n_items, arrays[_NEIGHBORS[0]].shape[-1])
            made._stored = NearestItems(
                checked(arrays, _NEIGHBORS[0], np.int32, shape),
                checked(arrays, _NEIGHBORS[1], np.float32, shape),
                checked(arrays, _NEIGHBORS[2], np.float32, shape[:1]),
            )
            if n_items and not 0 <= made._stored.items.min() <= made._stored.items.max() < n_items:
                raise ValueError(f"{_NEIGHBORS[0]} should be rows of items")
        return made

    def _with_single_events_placed(self) -> Mixture:
        """Return a copy in which users with one event, who have no targets, have a position.

        They are folded in like new users, and the history vectors of items that no other user has
        are set to their item vectors: otherwise both would keep their initial values.
        """
        histories = self.known.histories
        single = histories.counts == 1
        if not single.any():
            return self
        users, history = self._learned_users, self.history
        if users is not None:
            users = users.copy()
            users[single] = self.place(histories.take(np.flatnonzero(single)))
        if not self.settings.tie_item_vectors:
            others = histories.items[~np.repeat(single, histories.counts)]
            is_trained = np.bincount(others, minlength=len(self.items)) > 0
            history = np.where(is_trained[:, None], history, self.items)
        return self.changed(_learned_users=users, history=history)

    def changed(self, **attributes: Any) -> Mixture:
        """Return a copy with other attributes."""
        made = copy(self)  # without cached properties
        vars(made).update(attributes)
        return made

    def arrays(self) -> Arrays:
        arrays = {} if self.is_context else {"user_vectors": self.users}
        arrays["item_vectors"] = self.items
        if not self.settings.tie_item_vectors:
            arrays["history_vectors"] = self.history
        arrays["item_bias"] = self.bias
        return arrays | ({} if self.transitions is None else self.transitions.arrays())

    def attributes(self) -> dict[str, Any]:
        return {"user_vectors": self.users, **self.arrays()}

    @property
    def is_context(self) -> bool:
        """Whether users are at the mean of the last items of their history."""
        return self._learned_users is None

    @cached_property
    def users(self) -> Array:
        """Vectors a of the users of the training data, (n_users, dim) float32."""
        learned = self._learned_users
        return self.place(self.known.histories) if learned is None else learned

    def stored_arrays(self) -> Arrays:
        if len(self.items) > _MOST_ITEMS or not self.is_finite:
            return self.arrays()
        near = self.neighbors.with_rows(np.arange(len(self.items), dtype=np.int32))
        return self.arrays() | dict(zip(_NEIGHBORS, near, strict=True))

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def item_points(self) -> Array:
        """Vectors b in padded rows, (n_items, width); the array itself if it needs no padding."""
        if self.items.shape[1] == padded_width(self.items.shape[1]):
            return self.items
        return padded(self.items).reshape(len(self.items), -1)

    @cached_property
    def item_squares(self) -> Array:
        """|b|^2, (n_items,) float32."""
        return squares(self.items).astype(np.float32)

    @cached_property
    def reach(self) -> tuple[float, float]:
        """The largest |b|, and the largest bias, signs aside."""
        longest = float(np.sqrt(self.item_squares.max(initial=0)))
        return longest, float(np.abs(self.bias).max(initial=0))

    @cached_property
    def item_offsets(self) -> Array:
        """Offsets of items in products with translated positions, (n_items,) float32."""
        steepness = self.settings.tau + self.settings.beta
        return (self.bias - steepness * squares(self.items)).astype(np.float32)

    @cached_property
    def _own_offsets(self) -> Array:
        """The same for positions that are not translated, c - beta |b|^2: (n_items,) float32."""
        return (self.bias - self.settings.beta * squares(self.items)).astype(np.float32)

    @cached_property
    def history_squares(self) -> Array:
        """|p|^2, (n_items,) float64."""
        return squares(self.history)

    @cached_property
    def terms(self) -> SparseTerms:
        """The sparse terms of transitions; empty without them."""
        return no_terms(len(self.items)) if self.transitions is None else self.transitions.terms

    @cached_property
    def _user_scorer(self) -> UserScorer:
        return UserScorer(self, self.known.histories, self.users)

    def log_weights(self, histories: Histories) -> Array:
        """Logarithms of how much items count by their distance from the present, (n_events,)."""
        if not self.known.timed:
            return np.zeros(len(histories.items))
        ago = np.repeat(histories.counts, histories.counts) - histories.places + 1
        return -self.settings.history_decay * np.log(ago)

    @cached_property
    def is_finite(self) -> bool:
        """Whether the vectors and biases of all items are finite, and their squares as well."""
        squared = (self.item_squares, self.history_squares.astype(np.float32))
        parts = (*squared, self.bias, self.terms.values)
        return all(bool(np.isfinite(part).all()) for part in parts)

    @cached_property
    def has_tables(self) -> bool:
        """Whether no term exp(-tau |p_k - b_i|^2) underflows."""
        farthest = np.sqrt(self.history_squares.max(initial=0)) + self.reach[0]
        return bool(self.settings.tau * farthest**2 <= _LARGEST_EXPONENT)

    @cached_property
    def neighbors(self) -> NeighborTable:
        """The nearest items of past items."""
        return NeighborTable(self.history, self.items, self.settings.tau, self._stored)

    def catalogue(self, past: Rows, allowed: Mask) -> Catalogue:
        """Return the items as `find_candidates` needs them, for users with these past items."""
        own_offsets = np.where(allowed, self._own_offsets, np.float32(-np.inf))
        points, offsets = read_only(self.item_points.reshape(-1)), read_only(self.item_offsets)
        return Catalogue(points, offsets, own_offsets, self.neighbors.with_rows(past))

    def _delegate(self) -> Scorer:
        return self._user_scorer

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum over past items; None with transitions."""
        dim = self.items.shape[1]
        if self.transitions is not None:
            return None

        def of_users(users: Rows) -> Queries:
            histories = self.known.histories.take(users)
            points = self._user_scorer.points(users)
            one = np.ones((len(points.points), 1), np.float32)
            vectors = np.hstack([one, points.points[:, :dim]])
            return Queries(histories.indptr, histories.items, vectors, points.offsets)

        return SumForm(np.hstack([self.item_offsets[:, None], self.items]), of_users)

    def _near(self, histories: Histories, items: Rows) -> Array:
        """Return log w_k + log(exp(-tau |p_k - b|^2) + m_ki) for one scored item per history."""
        scored = np.repeat(items, histories.counts)
        b = self.items[scored].astype(np.float64)
        near = -self.settings.tau * np.square(self.history[histories.items] - b).sum(axis=1)
        if self.transitions is not None:
            terms = self.transitions.of_pairs(histories.items, scored)
            with np.errstate(divide="ignore"):  # most terms are 0
                near = np.logaddexp(near, np.log(terms))
        return self.log_weights(histories) + near

    def shares(self, histories: Histories, items: Rows) -> Array:
        """Return the shares of each history's items in the score of one item, wherever users are.

        Shares add up to one: the user's position is the same factor for all items of a history.
        """
        logs = self._near(histories, items)
        return np.exp(logs - np.repeat(_log_sums(histories, logs), histories.counts))

    def translations(self, users: Rows, items: Rows) -> Scores:
        """Return the means of r_uk = tau / (tau + beta) (p_k - a_u) by their shares, (n, dim)."""
        histories = self.known.histories.take(users)
        middle = _averages(histories, self.shares(histories, items), self.history)
        tau, beta = self.settings.tau, self.settings.beta
        moved = tau / max(tau + beta, TINY) * (middle - self.users[users])
        return moved.astype(np.float32)

    def fold_in(self, histories: Histories) -> Scorer:
        return UserScorer(self, histories, self.place(histories))

    def with_histories(self, histories: Histories) -> Scorer:
        return UserScorer(self, histories, self.place(histories) if self.is_context else self.users)

    def place(self, histories: Histories) -> Array:
        """Return the positions of new users by their items: a, (n, dim) float32."""
        weights = np.exp(self.log_weights(histories))
        if self.is_context:
            ago = np.repeat(histories.counts, histories.counts) - histories.places + 1
            weights = np.where(ago <= REACH, 1 / ago, 0.0)
        return _averages(histories, weights, self.items).astype(np.float32)

    def _histories(self, history: Rows) -> Histories:
        return Histories.of([history], len(self.known.items))

    def position(self, user: int | None, history: Rows) -> Array:
        is_new = user is None or self.is_context
        return np.asarray(self.place(self._histories(history))[0] if is_new else self.users[user])

    def translated_position(self, user: int | None, history: Rows, items: Rows) -> Array:
        """Return the translated positions for some items, (n, dim); see `translations`."""
        ways = [self.ways(user, history, item) for item in items.tolist()]
        return np.array([shares @ points for points, shares in ways]).reshape(len(items), -1)

    def ways(self, user: int | None, history: Rows, item: int) -> tuple[Array, Array]:
        """Return the points a + r_uk, (n, dim), and their shares in an item's score, (n,)."""
        own, tau, beta = self.position(user, history), self.settings.tau, self.settings.beta
        points = own + tau / max(tau + beta, TINY) * (self.history[history] - own)
        return points, self.shares(self._histories(history), np.array([item], np.int32))

    def contributions(self, history: Rows, item: int) -> Contributions:
        shares = self.shares(self._histories(history), np.array([item], np.int32))
        return Contributions(history, shares, SHARE)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        histories = self._histories(history)
        a = self.position(user, history)
        b = self.items[item].astype(np.float64)
        own = float(np.square(a - b).sum())
        nearest = float(np.square(self.history[history] - b).sum(axis=1).min())
        bias = float(self.bias[item])
        words: tuple[str, ...] = (
            f"Squared distances from the item: {nearest:.4f} from the nearest point of the "
            f"history, {own:.4f} from the user's own; the item's bias is {bias:.4f}.",
            "Without a past item of the share x, and with the user at the same position, the score "
            "would change by log(1 - x).",
        )
        facts = {"bias": bias, "distance": own, "nearest_distance": nearest}
        if self.transitions is not None:
            one = np.array([item], np.int32)
            terms = self.transitions.of_pairs(history, np.repeat(one, len(history)))
            total = _log_sums(histories, self._near(histories, one))[0]
            counted = float((np.exp(self.log_weights(histories) - total) * terms).sum())
            words += (f"Transition counts make up {counted:.0%} of the sum, the vectors the rest.",)
            facts["transitions"] = counted
        return Remarks(words, facts)

    def grown(self, log: Interactions) -> Mixture:
        """Return the same with interactions added: trained points stay, new ones are placed.

        Items are placed by `grow`, as in TransCF without translation; users are folded in.
        """
        # Without translation there are no neighbourhoods; arrays of their shape take their place.
        sides = (self.users, self.users), (self.items, self.items, self.bias)
        score, weights = SCORE_FUNCTIONS["none"], np.ones(len(log), np.float32)
        known, users, items, bias = grow(self.known, log, weights, score, *sides)
        rows, history = known.items.rows(self.known.items.series), items
        if not self.settings.tie_item_vectors:
            history = items.copy()
            history[rows[self.rankable]] = self.history[self.rankable]
        is_new = known.active.copy()
        is_new[known.users.rows(self.known.users.series)[self.known.active]] = False
        made = Mixture(
            known, self.settings, users=None if self.is_context else users, items=items,
            history=history, bias=bias,
        )  # fmt: skip
        if not self.is_context:
            users[is_new] = made.place(known.histories.take(np.flatnonzero(is_new)))
        if self.transitions is None:
            return made
        # Transitions are counted again; Z stays, and that of new items is computed.
        logs, trained = np.zeros(len(items)), np.zeros(len(items), np.bool_)
        logs[rows], trained[rows] = self.transitions.log_partition, self.rankable
        new = np.flatnonzero(~trained).astype(np.int32)
        logs[new] = log_partitions(made, new, trained)
        return made.changed(transitions=Transitions.of(made, self.transitions.strength, logs))

    def with_bias(self, offset: Scores) -> Mixture:
        """Return the same with a number added to each item's bias; nearest items stay the same."""
        made = self.changed(bias=self.bias + offset)
        made.neighbors = self.neighbors
        return made

    def item_similarity(self) -> Scorer:
        return FormView(self.name, self.rankable, nearness_form(self.items))

    def user_similarity(self) -> Scorer:
        return FormView(self.name, self.known.active, nearness_form(self.users))


def _log_sums(histories: Histories, logs: Array) -> Array:
    """Logarithms of sums of exponentials over each history: (n,); NaN where it is empty."""
    starts, counts = histories.indptr[:-1], histories.counts
    padded_logs = np.append(logs, -np.inf)  # a start may be the end
    highest = np.where(counts > 0, np.maximum.reduceat(padded_logs, starts), 0.0)
    above = np.append(np.exp(logs - np.repeat(highest, counts)), 0.0)
    sums = np.where(counts > 0, np.add.reduceat(above, starts), np.nan)
    return highest + np.log(sums)


def _averages(histories: Histories, weights: Array, values: Array) -> Array:
    """Weighted means of items' values over histories: (n, dim) float64; 0 where one is empty."""
    items, places = np.unique(histories.items, return_inverse=True)
    shape = (len(histories), len(items))
    matrix = sp.csr_array((weights, places, histories.indptr), shape=shape)
    totals = np.asarray(matrix.sum(axis=1))[:, None]
    return matrix @ values[items].astype(np.float64) / np.where(totals > 0, totals, 1.0)
