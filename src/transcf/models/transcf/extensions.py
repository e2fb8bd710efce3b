"""Extensions of TransCF that the paper's discussion proposes: settings, model and scores.

The published model translates a user u toward an item i by r = q_u * n_i, where q_u is the mean of
the vectors of the user's items and n_i the mean of the vectors of the item's users. Each extension
changes one part of it:

| extension | change |
|---|---|
| attention | q and n are weighted means: softmax of b_i . (w * b_k), and of a_u . (w' * a_v) |
| map | r = q * n + tanh(q W_q + n W_n + e) W_out |
| friends | q_u = (1 - share) q_u + share * the mean of a over the user's friends |
| categories | n_i = (1 - share) n_i + share * the mean of b over items of the same categories |
| swapped | items are translated toward users: s(u, i) = -|b_i + r - a_u|^2 + c_i |

Training is in `extension_training` and needs torch. Scores need numpy only: they are computed for
one user and all items at a time.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.errors import DataError
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import EventWeights, weights_in_order
from transcf.models.families import NeuralSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.models.torch.common import find_device
from transcf.models.training import TrainingRun
from transcf.models.transcf.solver_fast import ObjectiveSettings
from transcf.retrieval.scorer import BlockView, FormView, Scorer, Scores, nearness_form

Extension: TypeAlias = Literal["attention", "map", "friends", "categories", "swapped"]


@settings(epochs=10, learning_rate=0.01, init_scale=0.01, event_weights=EventWeights(recency=4.0))
class ExtensionSettings(NeuralSettings, ObjectiveSettings):
    """Hyper-parameters of the extensions of TransCF."""

    extension: Extension = setting(
        "attention",
        '"attention" learns weights of neighbours; "map" learns the translation from both '
        'neighbourhoods; "friends" and "categories" add linked users and items of the same '
        'category to neighbourhoods; "swapped" translates items toward users.',
    )
    share: float = setting(
        0.5, "Weight of friends or of categories in neighbourhoods.", low=0, high=1
    )
    hidden: int = setting(8, "Width of the hidden layer of the map.", low=1, high=4096)
    max_neighbors: int = setting(
        30, "Neighbours per training step, drawn where there are more (attention).", low=1
    )
    negatives: int = setting(
        5, "Negative items drawn per triple, of which the hardest is used.", low=1, high=1000
    )
    batch_size: int = setting(1024, "Triples per batch.", low=1)

    def rate_at(self, epoch: float) -> float:
        """Return the learning rate of an epoch, counted from 1; it decays linearly to 0."""
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all weights that belong to no user or item."""
        dim, wide = self.dim, self.hidden
        if self.extension == "attention":
            return {"item_attention": (dim,), "user_attention": (dim,), "temperatures": (2,)}
        if self.extension == "map":
            maps = {"map_q": (dim, wide), "map_n": (dim, wide)}
            return {**maps, "map_bias": (wide,), "map_out": (wide, dim)}
        return {}


class TransCFExtended(Recommender[ExtensionSettings]):
    """TransCF with attention, a learned map, side data or swapped roles.

    The score, the loss and the fold-in of new users are those of `TransCF`, with the change that
    `extension` names (see the module). Gradients are exact for the neighbourhoods of a batch, and
    steps are Adam's; vectors stay in the unit ball. "friends" needs a log with links between users,
    "categories" one with categories of items.

    Attributes (after `fit`):
        user_vectors_: a, (n_users, dim) float32.
        item_vectors_: b, (n_items, dim) float32.
        user_neighborhoods_: q, (n_users, dim) float32; without attention weights.
        item_neighborhoods_: n, (n_items, dim) float32; without attention weights.
        item_bias_: c, (n_items,) float32.

    References:
        Park, Kim, Xie, Yu: Collaborative Translational Metric Learning. ICDM 2018.

    Example:
        >>> from transcf import TransCFExtended, synthesize
        >>> log = synthesize(users=100, items=50, interactions=1000, seed=0)
        >>> model = TransCFExtended(extension="map", dim=8, epochs=1).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    _divergence_hint: ClassVar[str] = "learning_rate (or margin, reg_distance, reg_neighborhood)"
    _resumable_params: ClassVar[tuple[str, ...]] = ("patience",)
    _variants: ClassVar[dict[str, dict[str, Any]]] = {
        f"transcf-{name}": {"extension": name}
        for name in ("attention", "map", "friends", "categories", "swapped")
    }
    _not_in_all: ClassVar[dict[str, str]] = {
        **dict.fromkeys(_variants, "an extension without a measured gain"),
        "transcf-friends": "it needs links between users",
        "transcf-categories": "it needs categories of items",
    }
    __init__ = init_from_params(ExtensionSettings)

    @property
    def name(self) -> str:
        """Name in tables: that of the extension."""
        return _name(self.settings_ if self.is_fitted else self.settings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        device = find_device(self.name, self.settings.device)
        from transcf.models.transcf.extension_training import ExtensionTraining

        problem = run.problem(self.settings)
        means = NeighborMeans.of_log(run, self.settings)
        training = ExtensionTraining(problem, self.settings, means, device)

        def snapshot(arrays: Arrays, known: TrainingData, settings: ExtensionSettings) -> Extended:
            q, n = means.all(arrays["user_vectors"], arrays["item_vectors"])
            own = {name: array.copy() for name, array in arrays.items() if "." not in name}
            near = {"user_neighborhoods": q, "item_neighborhoods": n}
            return self._restore(own | near, known, settings)

        return run.run(training, self.settings, snapshot)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: ExtensionSettings
    ) -> Extended:
        users, items = (len(known.users), settings.dim), (len(known.items), settings.dim)
        shapes = {
            "user_vectors": users,
            "item_vectors": items,
            "user_neighborhoods": users,
            "item_neighborhoods": items,
            "item_bias": items[:1],
            **settings.weight_shapes(),
        }
        # Folders of version 0.1 may have no biases.
        arrays = {"item_bias": np.zeros(items[0], np.float32)} | arrays
        found = {name: checked(arrays, name, np.float32, shape) for name, shape in shapes.items()}
        return Extended(known, settings, found)


def _name(settings: ExtensionSettings) -> str:
    return f"TransCF-{settings.extension}"


class NeighborMeans:
    """Neighbourhoods as products of sparse matrices with the vectors.

        q = user_items @ b + user_users @ a
        n = item_users @ a + item_categories @ (members @ b) - own * b

    Without friends `user_users` is None, and without categories the last three matrices are.

    Args:
        by_user: Interactions, (n_users, n_items).
        friends: Linked users, (n_users, n_users).
        categories: Categories of items, (n_items, n_categories).
        share: Weight of friends or categories.
    """

    def __init__(
        self, by_user: sp.csr_array, friends: sp.csr_array | None = None,
        categories: sp.csr_array | None = None, share: float = 0.0,
    ) -> None:  # fmt: skip
        by_item = sp.csr_array(by_user.T)
        self.user_users = self.item_categories = self.members = self.own = None
        kept_users, kept_items = np.ones(by_user.shape[0]), np.ones(by_user.shape[1])
        if friends is not None:
            active = sp.diags_array((by_user.sum(axis=1) > 0).astype(np.float64))
            self.user_users = _averaging(sp.csr_array(friends @ active), share)
            kept_users -= self.user_users.sum(axis=1)
        if categories is not None:
            active = sp.diags_array((by_item.sum(axis=1) > 0).astype(np.float64))
            self.members = sp.csr_array((active @ categories).T)
            # Other members of each category of an item: the mean of their vectors counts.
            sizes = self.members.sum(axis=1)
            entries = sp.coo_array(categories)
            others = sizes[entries.col] - active.diagonal()[entries.row]
            weights = np.where(others > 0, 1 / np.maximum(others, 1), 0.0)
            counts = np.bincount(entries.row, others > 0, categories.shape[0])
            weights *= share / np.maximum(counts, 1)[entries.row]
            shape = categories.shape
            self.item_categories = sp.csr_array((weights, (entries.row, entries.col)), shape)
            self.own = self.item_categories.sum(axis=1) * active.diagonal()
            kept_items = np.where(counts > 0, 1 - share, 1.0)
        self.user_items = sp.csr_array(sp.diags_array(kept_users) @ _averaging(by_user))
        self.item_users = sp.csr_array(sp.diags_array(kept_items) @ _averaging(by_item))

    @classmethod
    def of_log(cls, run: TrainingRun, settings: ExtensionSettings) -> NeighborMeans:
        """Take interactions and side data from a log.

        Raises:
            DataError: The log has no links, or no categories, and the extension needs them.
        """
        log, friends, categories = run.train, None, None
        side = {"friends": ("links", log.links), "categories": ("categories", log.categories)}
        what, table = side.get(settings.extension, ("", ()))
        if table is None:
            raise DataError(
                f"{_name(settings)} needs {what}, and the log has none: give "
                f"read_interactions(..., {what}=...)."
            )
        if settings.extension == "friends":
            friends = log.friends.to_scipy()
        if settings.extension == "categories":
            categories = log.item_categories.to_scipy()
        return cls(log.by_user.to_scipy(), friends, categories, settings.share)

    def all(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return q of all users and n of all items, float32."""
        q, n = self.user_items @ b, self.item_users @ a
        if self.user_users is not None:
            q = q + self.user_users @ a
        if self.item_categories is not None and self.members is not None and self.own is not None:
            n = n + self.item_categories @ (self.members @ b) - self.own[:, None] * b
        return q.astype(np.float32), n.astype(np.float32)


def _averaging(matrix: sp.csr_array, weight: float = 1.0) -> sp.csr_array:
    """Scale the rows of a matrix of zeros and ones to a sum; empty rows stay empty."""
    matrix = matrix.astype(np.float64)
    matrix.eliminate_zeros()
    counts = np.diff(matrix.indptr)
    values = np.repeat(weight / np.maximum(1, counts), counts)
    return sp.csr_array((values, matrix.indices, matrix.indptr), matrix.shape)


class Extended(FittedScorer):
    """The fitted vectors, neighbourhoods and weights, and how they score."""

    def __init__(self, known: TrainingData, settings: ExtensionSettings, arrays: Arrays) -> None:
        super().__init__(known, _name(settings))
        self.settings, self._arrays = settings, arrays

    def arrays(self) -> Arrays:
        """Return what files hold, by name."""
        return self._arrays

    @cached_property
    def _exact(self) -> Arrays:
        """The arrays in float64."""
        return {name: array.astype(np.float64) for name, array in self._arrays.items()}

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        a, q = self._exact["user_vectors"], self._exact["user_neighborhoods"]
        seen = self.known.histories
        return self._block([self._scores(a[u], q[u], seen[u]) for u in users.tolist()])

    def _block(self, rows: list[Array]) -> Scores:
        return np.array(rows, np.float32).reshape(len(rows), len(self.known.items))

    def _scores(self, a: Array, q: Array, history: Rows) -> Array:
        """Return the scores of all items for a user with the vector a and the mean item q."""
        arrays, extension = self._exact, self.settings.extension
        b, n = arrays["item_vectors"], arrays["item_neighborhoods"]
        if extension == "attention":
            keys = arrays["item_attention"] * np.exp(arrays["temperatures"][0])
            past = b[history]
            q = softmax((b * keys) @ past.T, axis=1) @ past if len(past) else q
            n = self._attended_users(a)
        r = q * n
        if extension == "map":
            sums = q @ arrays["map_q"] + n @ arrays["map_n"] + arrays["map_bias"]
            r += np.tanh(sums) @ arrays["map_out"]
        difference = b + r - a if extension == "swapped" else a + r - b
        scores: Array = arrays["item_bias"] - (difference**2).sum(axis=1)
        return scores

    def _attended_users(self, a: Array) -> Array:
        """Return n of all items for a user at a, (n_items, dim)."""
        users, by_item = self._exact["user_vectors"], self.known.by_item
        scale = self._exact["user_attention"] * np.exp(self._exact["temperatures"][1])
        logits, counts = (users @ (a * scale))[by_item.indices], by_item.counts
        starts, has_users = by_item.indptr[:-1][counts > 0], counts > 0
        weights = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), counts[has_users]))
        weights /= np.repeat(np.add.reduceat(weights, starts), counts[has_users])
        shape = (len(counts), len(users))
        n: Array = sp.csr_array((weights, by_item.indices, by_item.indptr), shape) @ users
        return n

    def fold_in(self, histories: Histories) -> Scorer:
        """Return a scorer of all items for users who are known by their items alone."""
        b, n = self._exact["item_vectors"], self._exact["item_neighborhoods"]
        recency = self.settings.event_weights.recency if self.known.timed else 0.0
        weights = weights_in_order(histories, recency).astype(np.float64)
        sign = 1 if self.settings.extension == "swapped" else -1
        mean = self.known.average_item(self._arrays["item_vectors"]).astype(np.float64)

        def place(row: int) -> tuple[Array, Array]:
            """Return a and q: a minimises the squared error of the history under q * n."""
            own = slice(histories.indptr[row], histories.indptr[row + 1])
            items, shares = histories.items[own], weights[own] / weights[own].sum()
            if not len(items):
                return mean, np.zeros_like(mean)
            q = b[items].mean(axis=0)
            return shares @ b[items] + sign * q * (shares @ n[items]), q

        def score(rows: Rows) -> Scores:
            return self._block([self._scores(*place(r), histories[r]) for r in rows.tolist()])

        return BlockView(self.name, self.rankable, score)

    def with_histories(self, histories: Histories) -> Scorer:
        """Return this scorer: the vectors of users are trained and do not follow a history."""
        return self

    def item_similarity(self) -> Scorer:
        """Return a scorer of items by their distance from items."""
        return FormView(self.name, self.rankable, nearness_form(self._arrays["item_vectors"]))

    def user_similarity(self) -> Scorer:
        """Return a scorer of users by their distance from users."""
        vectors = self._arrays["user_vectors"]
        return FormView(self.name, self.known.active, nearness_form(vectors))
