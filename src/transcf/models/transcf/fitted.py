# ruff: noqa: D102  (methods of the base class are documented there)
"""`Translated`: the fitted vectors and neighbourhoods of TransCF, their scores and explanations."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Histories, offsets
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.data.report import counted
from transcf.data.training_data import Growth
from transcf.errors import DataError
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.kernels.neighborhood import row_means
from transcf.models.event_weights import EventWeights, InteractionWeights, weights_in_order
from transcf.models.explain import REPLACED, Contributions, Remarks
from transcf.models.factors import in_pieces
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS, TINY, ScoreFunction
from transcf.retrieval.scorer import FormView, LinearForm, Scorer, Scores

if TYPE_CHECKING:
    from transcf.models.transcf.model import TransCFSettings


class Translated(FittedScorer):
    """Vectors of users and items, and the neighbourhoods that translate between them.

    Users are a, (n_users, dim), items b, (n_items, dim), and biases c, (n_items,): float32. `means`
    are q and n, (n_users, dim) and (n_items, dim); None computes them when needed.
    """

    def __init__(
        self, known: TrainingData, settings: TransCFSettings, users: Array, items: Array,
        bias: Array, means: tuple[Array, Array] | None = None,
    ) -> None:  # fmt: skip
        self.score_function, self.settings = SCORE_FUNCTIONS[settings.variant], settings
        super().__init__(known, settings.title)
        self.users, self.items, self.bias, self._means = users, items, bias, means

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, known: TrainingData, settings: TransCFSettings
    ) -> Translated:
        """Check the arrays of a file or of a solver."""
        of_users, of_items = (len(known.users), settings.dim), (len(known.items), settings.dim)
        bias: Array = np.zeros(len(known.items), np.float32)
        if settings.item_bias:
            bias = checked(arrays, "item_bias", np.float32, of_items[:1])
        users = checked(arrays, "user_vectors", np.float32, of_users)
        items = checked(arrays, "item_vectors", np.float32, of_items)
        means = None
        if SCORE_FUNCTIONS[settings.variant].has_neighborhoods and "user_neighborhoods" in arrays:
            means = (
                checked(arrays, "user_neighborhoods", np.float32, of_users),
                checked(arrays, "item_neighborhoods", np.float32, of_items),
            )
        return cls(known, settings, users, items, bias, means)

    def arrays(self) -> Arrays:
        arrays = {"user_vectors": self.users, "item_vectors": self.items}
        if self.score_function.has_neighborhoods:
            arrays |= {"user_neighborhoods": self.q, "item_neighborhoods": self.n}
        return arrays | ({"item_bias": self.bias} if self.settings.item_bias else {})

    @cached_property
    def q(self) -> Array:
        """The mean item of every user, (n_users, dim)."""
        if self._means is not None:
            return self._means[0]
        return row_means(self.known.seen.indptr, self.known.seen.indices, self.items)

    @cached_property
    def n(self) -> Array:
        """The mean user of every item, (n_items, dim)."""
        if self._means is not None:
            return self._means[1]
        return row_means(self.known.by_item.indptr, self.known.by_item.indices, self.users)

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def _linear(self) -> LinearForm:
        score = self.score_function
        y = score.linear_items(self.items, self.n, self.bias[:, None])
        return LinearForm(y, lambda users: score.linear_users(self.users[users], self.q[users]))

    def linear_form(self) -> LinearForm:
        return self._linear

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        def score(u: Rows, i: Rows) -> Scores:
            vectors = self.users[u], self.q[u], self.items[i], self.n[i]
            return self.bias[i] - self.score_function.pair_cost(*vectors)

        return in_pieces(score, users, items)

    def with_bias(self, offset: Array) -> Translated | None:
        if not self.settings.item_bias:
            return None
        changed = copy(self)  # without cached properties
        changed.bias = self.bias + offset
        return changed

    def translations(self, users: Rows, items: Rows) -> Scores:
        """Return the vectors that move users toward items, by pairs of rows: (n, dim)."""
        return self.score_function.translation(
            self.users[users], self.q[users], self.items[items], self.n[items]
        )

    def _vectors(self, user: int | None, history: Rows) -> tuple[Array, Array]:
        """Return a and q of a user or of a new user (None), (dim,) float64 each."""
        if user is not None:
            return self.users[user].astype(np.float64), self.q[user].astype(np.float64)
        (a,), (q,) = self.fold_in_vectors(self._histories(history))
        return a, q

    def position(self, user: int | None, history: Rows) -> Array:
        return self._vectors(None, history)[0] if user is None else self.users[user]

    def _histories(self, history: Rows) -> Histories:
        return Histories.of([history], len(self.known.items))

    def translated_position(self, user: int | None, history: Rows, items: Rows) -> Array | None:
        """Return a + r for some items, (n, dim), where the score translates."""
        if not (self.score_function.has_neighborhoods and self.score_function.is_distance):
            return None
        a, q = self._vectors(user, history)
        return a + q * self.n[items]

    # -- new users, explanations, similar users and items ----------------------------------------

    @property
    def recency(self) -> float:
        """Recency of training, if the log had times."""
        return self.settings.event_weights.recency if self.known.timed else 0.0

    def fold_in(self, histories: Histories) -> Scorer:
        return self.fold_in_with_sgd(histories, 0)

    def with_histories(self, histories: Histories) -> Scorer:
        return self  # the vectors of users are trained and do not follow a history

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        a, q = self.fold_in_vectors(histories, steps)
        x, constants = self.score_function.linear_users(a.astype(np.float32), q.astype(np.float32))
        return FormView(self.name, self.rankable, self._linear.for_users(x, constants))

    def fold_in_vectors(self, histories: Histories, steps: int = 0) -> tuple[Array, Array]:
        """Return a and q of new users, (n, dim) float64; steps are on the training loss."""
        weights = weights_in_order(histories, self.recency)
        means = averages(histories.indptr, histories.items, weights, histories.n_items)
        a, q = fold_users(self.score_function, means, self.items, self.n, self.user_length)
        for place in range(len(histories) if steps else 0):
            own = slice(histories.indptr[place], histories.indptr[place + 1])
            others = self.rankable.copy()
            others[histories.items[own]] = False
            a[place] = refine_user(
                self.settings, a[place], q[place], histories.items[own], weights[own],
                (self.items, self.n, self.bias), np.flatnonzero(others), steps,
            )  # fmt: skip
        return a, q

    def grown(self, log: Interactions) -> Translated:
        """Return the same with interactions added; see `grow`."""
        weights = InteractionWeights.of(log, EventWeights(recency=self.recency)).within_users
        weights = weights if len(weights) else np.ones(len(log), np.float32)
        sides = (self.users, self.q), (self.items, self.n, self.bias)
        score, length = self.score_function, self.user_length
        known, a, b, bias = grow(self.known, log, weights, score, *sides, length)
        return Translated(known, self.settings, a, b, bias)

    @cached_property
    def user_length(self) -> float:
        """Length of user vectors relative to their neighbourhoods; used for inner products."""
        if self.score_function.is_distance:
            return 1.0
        sides = (self.users[self.known.active], self.q[self.known.active])
        lengths = [np.linalg.norm(rows, axis=1).mean() for rows in sides]
        return float(lengths[0] / max(lengths[1], TINY))

    def contributions(self, history: Rows, item: int) -> Contributions:
        score = self.score_function
        mean_b, mean_n, mean_y = self._average_item
        b = np.vstack([self.items[history], mean_b]).astype(np.float64)
        n = np.vstack([self.n[history], mean_n]).astype(np.float64)
        even = Replacing(np.ones(len(history)))
        weighted = Replacing(weights_in_order(self._histories(history), self.recency))
        a, q = score.place_users(even, weighted, b, n) * self.user_length, even @ b
        lead = self._linear.item_vectors[item].astype(np.float64) - mean_y
        leads = score.linear_users(a, q)[0] @ lead
        return Contributions(history, leads[0] - leads[1:], REPLACED)

    @cached_property
    def _average_item(self) -> tuple[Array, Array, Array]:
        """Mean b, n and vector in the linear form of the items of all interactions."""
        average = self.known.average_item
        return average(self.items), average(self.n), average(self._linear.item_vectors)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        known, score = self.known, self.score_function
        if not score.is_distance:
            return Remarks()
        (a, q), b = self._vectors(user, history), self.items[item].astype(np.float64)
        before, after = float(((a - b) ** 2).sum()), float(score.pair_cost(a, q, b, self.n[item]))
        bias = float(self.bias[item])
        entries = np.flatnonzero(known.seen.indices == item)
        owners = np.searchsorted(known.seen.indptr, entries, side="right") - 1
        rows = owners[owners != user]
        away = ((self.users[rows].astype(np.float64) - a) ** 2).sum(axis=1)
        order = np.argsort(away, kind="stable")[:top]
        ids = known.users.ids(rows[order]).to_list()
        nearest = dict(zip(ids, away[order].tolist(), strict=True))
        words = [f"The score is the item's bias {bias:.4f} minus the squared distance {after:.4f}."]
        if score.has_neighborhoods:
            how = "nearer" if after <= before else "farther"
            words.append(f"Translation brings them {how}: the distance was {before:.4f} before it.")
        if nearest:
            listed = ", ".join(f"{who} ({distance:.4f})" for who, distance in nearest.items())
            words.append(f"Nearest users who have it, by squared distance: {listed}.")
        facts = {
            "bias": bias,
            "distance_before": before,
            "distance_after": after,
            "neighbors": [{"user_id": who, "distance": far} for who, far in nearest.items()],
        }
        return Remarks(tuple(words), facts)

    def item_similarity(self) -> Scorer:
        return FormView(self.name, self.rankable, self.score_function.likeness(self.items))

    def user_similarity(self) -> Scorer:
        return FormView(self.name, self.known.active, self.score_function.likeness(self.users))


class Replacing:
    """Averages of a history as it is, and with an average item in the place of each one.

    `Replacing(weights) @ values` maps values (n + 1, dim), of the n items of the history and of
    the average item, to averages (n + 1, dim). Weights (n,) belong to positions.
    """

    def __init__(self, weights: Array) -> None:
        self._shares = weights / weights.sum()

    def __matmul__(self, values: Array) -> Array:
        own, average = values[:-1], values[-1]
        mean = self._shares @ own
        return np.vstack([mean, mean + self._shares[:, None] * (average - own)])


# -- users and items that were not trained ------------------------------------------------------

# The closed forms minimise the squared error |a + q * n - b|^2 of the known pairs (for "alt" that
# of its own error). With the translation r, a user is placed at the mean of b_i - r_ui over the
# user's items, later ones weighing more, and an item at the mean of a_u + r_ui over its users.


def averages(
    indptr: Array, indices: Array, weights: Array, n_columns: int
) -> tuple[sp.csr_array, sp.csr_array]:
    """Return matrices that average the neighbours of rows evenly, and by weight: (n, n_columns).

    Neighbours and their weights, (nnz,), are compressed by row: `indptr` (n + 1,); no row is empty.
    """

    def averaging(weights: Array) -> sp.csr_array:
        shares = weights / np.repeat(np.add.reduceat(weights, indptr[:-1]), np.diff(indptr))
        return sp.csr_array((shares, indices, indptr), shape=(len(indptr) - 1, n_columns))

    return averaging(np.ones(len(indices))), averaging(weights.astype(np.float64))


def fold_users(
    score: ScoreFunction, means: tuple[Any, Any], b: Array, n: Array, length: float
) -> tuple[Array, Array]:
    """Return a and q of new users, (n, dim), by the `averages` of their items.

    Inner products need the `length` of a relative to that of q.
    """
    even, b, n = means[0], b.astype(np.float64), n.astype(np.float64)
    a = score.place_users(*means, b, n)
    return (a if score.is_distance else length * a), even @ b


def by_count(values: Array, counts: Array, new_counts: Array) -> Array:
    """Predict values (m,) of new items by regression of those of trained ones on log(counts)."""
    centered = np.log(counts) - np.log(counts).mean()
    slope = (centered @ values) / max(centered @ centered, TINY)
    predicted = values.mean() + slope * (np.log(new_counts) - np.log(counts).mean())
    return np.clip(predicted, values.min(), values.max())


def refine_user(
    settings: TransCFSettings, a: Array, q: Array, history: Array, weights: Array,
    items: tuple[Array, Array, Array], pool: Array, steps: int,
) -> Array:  # fmt: skip
    """Return a of a user (dim,) after gradient steps with fixed items and negatives of `pool`.

    `items` are b, n and the biases.
    """
    b, n, bias = items
    generator = np.random.default_rng([settings.random_state, len(history)])
    score, share = SCORE_FUNCTIONS[settings.variant], weights / weights.sum()
    rank_weights = settings.rank_weights(len(pool) + len(history))
    b_i, n_i, bias_i = b[history], n[history], bias[history]
    for _ in range(steps if len(pool) else 0):
        drawn = generator.choice(pool, (len(history), settings.negatives))
        near = score.pair_cost(a, q, b_i, n_i) - bias_i
        far = score.pair_cost(a, q, b[drawn], n[drawn]) - bias[drawn]
        gaps = settings.margin + near[:, None] - far
        hardest = drawn[np.arange(len(drawn)), gaps.argmax(axis=1)]
        weight = rank_weights[(gaps > 0).sum(axis=1)]
        pull = score.pair_slope(weight + settings.reg_distance, a, q, b_i, n_i)[0]
        push = score.pair_slope(-weight, a, q, b[hardest], n[hardest])[0]
        slope = share @ (pull + push) + 2 * settings.reg_neighborhood * (a - q)
        a = a - settings.learning_rate * slope
    return a


def grow(
    known: TrainingData, log: Interactions, weights: Array, score: ScoreFunction,
    users: tuple[Array, Array], items: tuple[Array, Array, Array], user_length: float = 1.0,
) -> tuple[TrainingData, Array, Array, Array]:  # fmt: skip
    """Add the interactions of a log to training data; return it with a, b and biases for it.

    New users and items are placed by their neighbours; the vectors of others do not change. Of the
    model, `users` are a and q, `items` b, n and biases; events of the log count by `weights`,
    (n_events,), for users.

    Raises:
        DataError: A user shares no item with the model, not even through others.
    """
    growth, rankable = Growth.of(known, log), known.rankable
    a, q = (growth.of_users(matrix) for matrix in users)
    b, n, bias = (growth.of_items(values) for values in items)
    has_user, has_item = growth.of_users(known.active), growth.of_items(rankable)
    counts, biases = known.item_counts[rankable], items[2][rankable].astype(np.float64)
    lengths = np.linalg.norm(items[0][rankable].astype(float), axis=1)
    event_users, event_items = growth.event_users, growth.event_items

    def place_users() -> bool:
        """Place users who have an item with a vector; return whether there were any."""
        usable = ~has_user[event_users] & has_item[event_items]
        rows, means = _neighbors(usable, event_users, event_items, weights, len(b))
        if len(rows):
            a[rows], q[rows] = fold_users(score, means, b, n, user_length)
            has_user[rows] = True
        return len(rows) > 0

    def place_items() -> bool:
        """Place items that have a user with a vector; return whether there were any."""
        usable = ~has_item[event_items] & has_user[event_users]
        rows, (even, _) = _neighbors(usable, event_items, event_users, weights, len(a))
        if len(rows):
            exact = a.astype(np.float64)
            # Training pushes vectors away from users without the item: means are shorter.
            placed = score.place_items(even, exact, q.astype(np.float64))
            n[rows] = even @ exact
            new_counts = growth.known.item_counts[rows]
            present = np.maximum(np.linalg.norm(placed, axis=1), np.finfo(np.float32).tiny)
            b[rows] = placed * (by_count(lengths, counts, new_counts) / present)[:, None]
            bias[rows] = by_count(biases, counts, new_counts)
            has_item[rows] = True
        return len(rows) > 0

    while place_users() or place_items():
        pass
    lost = np.unique(event_users[~has_user[event_users]])
    if len(lost):
        raise DataError(
            f"user {growth.known.users.ids(lost[:1]).item()!r} ({counted(len(lost), 'user')} in "
            "all) shares no item with a user of the model, not even through others: leave "
            "them out, or fit again with all interactions."
        )
    return growth.known, a, b, bias


def _neighbors(
    usable: Array, owners: Array, others: Array, weights: Array, n_columns: int
) -> tuple[Array, tuple[sp.csr_array, sp.csr_array]]:
    """Return the owners of usable events, and the averages of the other sides of these events."""
    order = np.flatnonzero(usable)
    order = order[np.argsort(owners[order], kind="stable")]
    rows, counts = np.unique(owners[order], return_counts=True)
    return rows, averages(offsets(counts), others[order], weights[order], n_columns)
