"""The model FISM, and what it has learned."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.kernels.neighborhood import row_means
from transcf.models.factors import Factors, stored_bias
from transcf.models.fism.settings import FISMSettings
from transcf.models.fism.training import Training
from transcf.models.fitted import FittedScorer
from transcf.models.fitting import Fit
from transcf.models.recommender import Recommender, init_from_params
from transcf.models.training_data import TrainingData
from transcf.retrieval.forms import StoredForm
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import FormView


class FISM(Recommender[FISMSettings]):
    """Users as the sum of their items, so that the similarity of two items is p_j . q_i.

    With N_u the items of user u, the score is

        s(u, i) = |N_u|^-alpha (sum of p_j over j in N_u) . q_i + b_i

    While learning, an item i of the user is left out of the history that predicts it (N_u without
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

    Somebody new is ranked exactly as a user with the same items would be. Users who have every item
    teach nothing, since there is no j.

    The defaults were chosen on validation data in full ranking; `FISM.paper` has settings for the
    protocol of TransCF's paper. Several threads help where no item belongs to a large share of the
    users: only then can users be learned side by side.

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

    @property
    def revision(self) -> int:
        """The default number of epochs depends on the data."""
        return 2

    def _learn(self, fit: Fit) -> FittedScorer:
        settings = fit.resolved(self.settings)
        return fit.run(Training(fit.train, settings), settings, self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: FISMSettings) -> FittedScorer:
        shape = (len(known.items), settings.dim)
        return SimilarityFactors(
            known,
            self.name,
            history=checked(arrays, "history_vectors", np.float32, shape),
            items=checked(arrays, "item_vectors", np.float32, shape),
            bias=stored_bias(arrays, known),
            alpha=settings.alpha,
        )


class SimilarityFactors(Factors):
    """`score(u, i) = |N_u|^-alpha (sum of p_j over j in N_u) . q_i + b_i`, for anybody with items.

    Args:
        known: What the model keeps of its training data.
        name: What tables call the model.
        history: p, (n_items, dim).
        items: q, (n_items, dim).
        bias: b, (n_items,).
        alpha: How far long histories are scaled down.
    """

    def __init__(
        self,
        known: TrainingData,
        name: str,
        *,
        history: Scores,
        items: Scores,
        bias: Scores,
        alpha: float,
    ) -> None:
        """Add up the users, which files need not hold."""
        super().__init__(
            known,
            name,
            users=history_sums(known.seen, history, alpha),
            items=items,
            guests=HistorySums(history, alpha),
            bias=bias,
            extras={"history_vectors": history},
            stores_users=False,
        )
        self.history = history

    def item_similarity(self) -> Scorer:
        """Return p_j . q_i: row j has how much having item j speaks for each other item."""
        constants = np.zeros(len(self.history), np.float32)
        form = StoredForm(self.history, self.items, constants)
        return FormView(self.name, self.rankable, form)


class HistorySums:
    """Makes people of their items.

    Args:
        history: p, (n_items, dim).
        alpha: How far long histories are scaled down.
    """

    def __init__(self, history: Scores, alpha: float) -> None:
        """Keep both."""
        self._history, self._alpha = history, alpha

    def __call__(self, histories: Histories) -> Scores:
        """Return |N|^-alpha times the sum of p over N for each, (n, dim)."""
        return history_sums(histories.matrix, self._history, self._alpha)

    def terms(self, history: Rows, vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return |N|^-alpha p_j . vector for each item j of a history: (n,).

        The scale is that of the whole history; with one item fewer it would be another.
        """
        scale = float(len(history)) ** -self._alpha
        terms: npt.NDArray[np.float64] = scale * (self._history[history].astype(float) @ vector)
        return terms


def history_sums(people: Csr, history: Scores, alpha: float) -> Scores:
    """Make people of their items: |N|^-alpha times the sum of p over N, (n, dim)."""
    means = row_means(people.indptr, people.indices, history)
    lengths = np.maximum(1, people.counts)[:, None]
    sums: Scores = means * (lengths ** (1 - alpha)).astype(means.dtype)
    return sums
