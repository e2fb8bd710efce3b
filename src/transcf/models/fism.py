"""FISM: factored item similarity models."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr, Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.kernels.fism import FISMRates, FISMVectors, run_epoch
from transcf.kernels.neighborhood import row_means
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.models.base import Recommender
from transcf.models.event_weights import InteractionWeights, WeightSettings
from transcf.models.factors import Factors, first_vectors, stored_bias
from transcf.models.families import MOST_SAMPLES, EpochRule, FactorSettings, IterationSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import init_from_params, setting, settings
from transcf.models.training import EpochStats, TrainingRun
from transcf.retrieval.scorer import Scores


@settings(learning_rate=0.02, init_scale=0.03)
class FISMSettings(FactorSettings, IterationSettings, WeightSettings):
    """Hyper-parameters of FISM."""

    _epoch_rule = EpochRule(30, 500, 100)
    epochs: int | None = setting(None, _epoch_rule.meaning, low=1)  # type: ignore[assignment]
    loss: Literal["auc", "rmse"] = setting(
        "rmse", '"auc" ranks pairs, "rmse" rebuilds ones and zeros.'
    )
    alpha: float = setting(
        0.5, "How far long histories are scaled down: 0 is a sum, 1 a mean.", low=0, high=1
    )
    regularization: float = setting(0.03, "L2 weight of the vectors.", low=0)
    bias_regularization: float = setting(0.01, "L2 weight of the biases.", low=0)
    samples_per_user: int | None = setting(
        None,
        "How many of the user's items are taken as i in an epoch; None takes each once, or, where "
        "events weigh more or less, as many as there are.",
        low=1,
        high=MOST_SAMPLES,
    )
    negatives: int = setting(20, "Items j for every i.", low=1, high=1000)


class FISM(Recommender[FISMSettings]):
    """Users as the sum of their items, so that the similarity of two items is p_j . q_i.

    With N_u the items of user u, the score is

        s(u, i) = |N_u|^-alpha (sum of p_j over j in N_u) . q_i + b_i

    In training, an item i of the user is left out of the history that predicts it (N_u without
    i in place of N_u), so that it cannot explain itself. Learned by stochastic gradient descent,
    the gradient going to every item of the history, from samples of an item i of the user and
    items j that the user does not have:

        loss="auc":   1/2 (1 - (s(u, i) - s(u, j)))^2                 for every j
        loss="rmse":  1/2 (1 - m - s(u, i))^2 + 1/2 (0 - m - s(u, j))^2 + ... over all j

    and `regularization / 2` times the squares of p_i, q_i and q_j, and `bias_regularization / 2`
    times those of b_i and b_j. With "auc" both scores use the history without i, as in the
    publication. With "rmse" the publication also has a bias for every user, which changes no
    ranking; here the share of ones among the samples, m = 1 / (1 + negatives), the same for all
    users, takes its place, so that a user has no parameters.

    Where `recency`, `half_life` or `confidence` weigh events, an event is taken as i in proportion
    to its weight among those of its user, and a user has samples in proportion to the mean of
    theirs if the weights compare users (by age or rating); histories stay plain.

    New users are scored exactly as a user with the same items. Users who have every item are not
    trained on, since there is no j. Users are visited one after the other, on one thread.

    The defaults were chosen on validation data in full ranking; `FISM.paper` has settings for the
    protocol of TransCF's paper.

    Attributes (after `fit`):
        history_vectors_: p, (n_items, dim) float32.
        item_vectors_: q, (n_items, dim) float32.
        item_bias_: b, (n_items,) float32.
        user_vectors_: |N_u|^-alpha times the sum of p over N_u, (n_users, dim) float32.

    Reference: Kabbur, Ning and Karypis, "FISM: factored item similarity models for top-N
    recommender systems" (KDD 2013).

    Example:
        >>> from transcf import FISM, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = FISM(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "FISM"
    __init__ = init_from_params(FISMSettings)

    #: Stored runs of earlier revisions are not reused.
    _revision: ClassVar[int] = 4

    def _learn(self, run: TrainingRun) -> FittedScorer:
        return run.run(Training(run.train, run.settings), self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: FISMSettings) -> FittedScorer:
        shape = (len(known.items), settings.dim)
        history = checked(arrays, "history_vectors", np.float32, shape)
        items = checked(arrays, "item_vectors", np.float32, shape)
        fold, bias = HistorySums(history, settings.alpha), stored_bias(arrays, known)
        return Factors(
            known, self.name, fold.of_sets(known.seen), items, fold, bias=bias, senders=history,
            extras={"history_vectors": history}, stores_users=False,  # they follow from p
        )  # fmt: skip


#: p, q and b.
_NAMES = ("history_vectors", "item_vectors", "item_bias")


class HistorySums:
    """Folds in new users: |N|^-alpha times the sum of p, (n_items, dim), over their items N."""

    def __init__(self, history: Scores, alpha: float) -> None:
        self._history, self._alpha = history, alpha

    def __call__(self, histories: Histories) -> Scores:
        """Return the vectors of new users, (n, dim)."""
        return self.of_sets(histories.matrix)

    def of_sets(self, by_user: Csr) -> Scores:
        """Return the vectors of users given by sets of items, (n, dim)."""
        means = row_means(by_user.indptr, by_user.indices, self._history)
        lengths = np.maximum(1, by_user.counts)[:, None]
        return means * (lengths ** (1 - self._alpha)).astype(means.dtype)

    def terms(self, history: Rows, vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return |N|^-alpha p_j . vector for each item j of a history: (n,)."""
        scale = float(len(history)) ** -self._alpha
        return scale * (self._history[history].astype(float) @ vector)


class Training:
    """The vectors of items, and an epoch of gradient descent on them."""

    def __init__(self, train: Interactions, settings: FISMSettings) -> None:
        self._settings, self._by_user = settings, train.by_user
        self._width = padded_width(settings.dim)
        weights = InteractionWeights.of(train, settings.event_weights)
        within, n_items = weights.within_users, train.n_items
        self._weights = within if len(within) else np.ones(len(train), np.float32)
        self._active = np.flatnonzero(train.by_item.counts).astype(np.int32)
        counts = train.by_user.counts
        # Users with no items have no positives, and users with every item no negatives.
        is_useful = (counts > 0) & (counts < len(self._active))
        self._users = np.flatnonzero(is_useful).astype(np.int32)
        #: Mean number of positives of each user in an epoch, (n_users,).
        self._expected: Array = (settings.samples_per_user or counts) * weights.of_users
        generator = np.random.default_rng(settings.random_state)
        drawn = first_vectors((n_items, n_items), settings.dim, settings.init_scale, generator)
        self.load_tensors(dict(zip(_NAMES, (*drawn, np.zeros(n_items, np.float32)), strict=True)))

    def run_epoch(self, number: int) -> EpochStats:
        """Visit every user once, in random order."""
        settings, vectors, by_user = self._settings, self._vectors, self._by_user
        users, positives, starts = self.visits(number)
        samples = int(positives.sum()) * (settings.negatives + (settings.loss == "rmse"))
        if not samples:
            return EpochStats(0.0, 0)
        dtype, rate = vectors.bias.dtype, settings.learning_rate
        scales = np.zeros(int(by_user.counts.max()) + 1, dtype)
        scales[1:] = np.arange(1.0, len(scales)) ** -settings.alpha
        rates = FISMRates(
            learning_rate=dtype.type(rate),
            shrink=dtype.type(rate * settings.regularization),
            bias_shrink=dtype.type(rate * settings.bias_regularization),
            offset=dtype.type(1 / (1 + settings.negatives)),
            negatives=settings.negatives,
            pairwise=settings.loss == "auc",
        )
        loss = run_epoch(
            rates, vectors, self._width, by_user.indptr, by_user.indices, self._weights,
            self._active, users, positives, starts, scales, settings.random_state, number,
        )  # fmt: skip
        return EpochStats(loss / samples, samples)

    def visits(self, number: int) -> tuple[Array, Array, Array]:
        """Return the users of an epoch, the number of positives of each, and where they start."""
        rng = np.random.default_rng((self._settings.random_state, number))
        users = rng.permutation(self._users)
        positives = np.floor(self._expected[users] + rng.random(len(users))).astype(np.int64)
        return users, positives, rng.random(len(users))

    def tensors(self) -> Arrays:
        """Return p, q and the biases, without padding."""
        (*vectors, bias), dim = self._vectors, self._settings.dim
        rows = [unpadded(flat, self._width, dim) for flat in vectors]
        return dict(zip(_NAMES, (*rows, bias.copy()), strict=True))

    def load_tensors(self, tensors: Arrays) -> None:
        """Restore p, q and the biases."""
        history, items, bias = (tensors[name] for name in _NAMES)
        self._vectors = FISMVectors(padded(history), padded(items), bias.copy())
