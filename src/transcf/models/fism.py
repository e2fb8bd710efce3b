"""FISM: factored similarities between items; users are made of their items."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.models._fism import Hyper, Training, user_vectors
from transcf.models._fism.training import Loss
from transcf.models._tensors import checked
from transcf.models.base import State
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Choice, Number, Rule
from transcf.models.vectors import VectorRecommender
from transcf.retrieval.scorer import Scores, StoredForm
from transcf.retrieval.views import FormView


class FISM(VectorRecommender):
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

    Somebody new is ranked exactly as a user with the same items would be. Users who have every item
    teach nothing, since there is no j.

    The defaults were chosen on validation data in full ranking; `FISM.paper` has settings for the
    protocol of TransCF's paper. Several threads help where no item belongs to a large share of the
    users: only then can users be learned side by side.

    Reference: Kabbur, Ning and Karypis, "FISM: factored item similarity models for top-N
    recommender systems" (KDD 2013).

    Args:
        loss: "auc" ranks pairs, "rmse" rebuilds ones and zeros.
        dim: Length of the vectors.
        alpha: How far long histories are scaled down: 0 is a sum, 1 a mean.
        learning_rate: Step size for each sample.
        regularization: L2 weight of the vectors.
        bias_regularization: L2 weight of the biases.
        samples_per_user: How many of the user's items are taken as i in an epoch; None takes each
            once.
        negatives: Items j for every i.
        init_scale: Standard deviation of the first vectors.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; the same seed gives the same bits for any number of threads.
        n_threads: Threads for training; None uses all.

    Attributes (after `fit`):
        history_vectors_: p, (n_items, dim) float32.
        item_vectors_: q, (n_items, dim) float32.
        item_bias_: b, (n_items,) float32.
        user_vectors_: |N_u|^-alpha times the sum of p over N_u, (n_users, dim) float32.

    Example:
        >>> from transcf import FISM, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = FISM(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "FISM"
    rules: ClassVar[dict[str, Rule]] = {
        "loss": Choice(("auc", "rmse")),
        "dim": Number(low=1, high=4096, whole=True),
        "alpha": Number(low=0, high=1),
        "learning_rate": Number(low=0, above=True),
        "regularization": Number(low=0),
        "bias_regularization": Number(low=0),
        "samples_per_user": Number(low=1, whole=True, optional=True),
        "negatives": Number(low=1, high=1000, whole=True),
        "init_scale": Number(low=0, above=True),
        **ITERATION_RULES,
    }

    history_vectors_: Scores

    def __init__(
        self,
        *,
        loss: Loss = "rmse",
        dim: int = 64,
        alpha: float = 0.5,
        learning_rate: float = 0.02,
        regularization: float = 0.03,
        bias_regularization: float = 0.01,
        samples_per_user: int | None = None,
        negatives: int = 20,
        init_scale: float = 0.03,
        epochs: int = 30,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        self.loss = loss
        self.dim = dim
        self.alpha = alpha
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.bias_regularization = bias_regularization
        self.samples_per_user = samples_per_user
        self.negatives = negatives
        self.init_scale = init_scale
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    def _trainable(self, train: Interactions) -> Training:
        hyper = Hyper(
            loss=self.loss,
            dim=self.dim,
            alpha=self.alpha,
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            bias_regularization=self.bias_regularization,
            samples_per_user=self.samples_per_user,
            negatives=self.negatives,
            init_scale=self.init_scale,
            seed=self.random_state,
        )
        return Training(train, hyper)

    # -- people beyond the training data, similar items ----------------------------------------

    def _fold_in(self, histories: sp.csr_array) -> Scores:
        indptr, indices = histories.indptr.astype(np.int64), histories.indices.astype(np.int32)
        return user_vectors(indptr, indices, self.history_vectors_, self.alpha)

    def _item_similarity(self) -> FormView:
        # Row i: how much having item i speaks for each other item.
        nothing = np.zeros(len(self.items_), np.float32)
        similarity = StoredForm(self.history_vectors_, self.item_vectors_, nothing)
        return FormView(self.name, self.rankable, similarity)

    # -- files ---------------------------------------------------------------------------------

    def _state(self) -> State:
        return {
            "history_vectors": self.history_vectors_,
            "item_vectors": self.item_vectors_,
            "item_bias": self.item_bias_,
        }

    def _restore(self, state: State) -> None:
        shape = (len(self.items_), self.dim)
        self.history_vectors_ = checked(state, "history_vectors", np.float32, shape)
        self.item_vectors_ = checked(state, "item_vectors", np.float32, shape)
        self.item_bias_ = checked(state, "item_bias", np.float32, shape[:1])
        self.user_vectors_ = user_vectors(
            self.seen_.indptr, self.seen_.indices, self.history_vectors_, self.alpha
        )
        self._linear = None
