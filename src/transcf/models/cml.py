"""CML: collaborative metric learning."""

from __future__ import annotations

from typing import ClassVar, Literal

import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.kernels.neighborhood import bound_rows
from transcf.models._pairwise import BoundAfter, HingeLoss, HingeSolver, PairwiseSolver, Start
from transcf.models._triples import Problem
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Choice, Flag, Number, Rule
from transcf.models.vectors import VectorRecommender
from transcf.retrieval.scorer import Scores


class CML(VectorRecommender):
    """Users and items as points of the unit ball: users come to lie near their items.

    With user vectors x_u and item vectors y_i the score is

        s(u, i) = -|x_u - y_i|^2

    Learned by stochastic gradient descent on triples of a user u, an item i of theirs and an item
    j that is not; vectors that leave the unit ball are brought back. The mean loss of a triple is

        w [margin + |x_u - y_i|^2 - |x_u - y_j|^2]_+ + covariance (|C|_F^2 - |diag C|_2^2) / N
            + regularization / 2 (|x_u|^2 + |y_i|^2 + |y_j|^2)

    where j is the nearest of `negatives` drawn items; w = log(1 + I v / m) / log(1 + I) with v of
    the m drawn items nearer than the margin allows and I items in all, if `rank_weighting` is set
    (w = 1 otherwise); and C is the covariance of all N vectors of users and items. (The paper
    prints |C|_F without the square, which would pull all vectors into one point; the regularizer
    that it refers to has it.) The loss in `history_` is the first term. Items without training
    interactions are never drawn, scored or recommended; users without any count as unknown.

    Args:
        dim: Length of the vectors.
        learning_rate: Step size for each triple.
        regularization: L2 weight of the vectors of a triple.
        margin: How much nearer than j the item i should be.
        negatives: Items drawn to choose the nearest from.
        rank_weighting: Whether violations by many of the drawn items weigh more.
        covariance: Weight of the regularizer that keeps the dimensions from saying the same.
        bound_after: When vectors are brought back into the unit ball: after every "step", or after
            every "epoch", which lets them travel further (TransCF's paper does so).
        samples_per_user: Triples per user and epoch; None draws as many as the user has items.
        init_scale: Standard deviation of the first vectors.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; the same seed gives the same bits for any number of threads.
        n_threads: Threads for training; None uses all.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_bias_: Zeros, (n_items,) float32.

    References:
        Hsieh, Yang, Cui, Lin, Belongie, Estrin: Collaborative Metric Learning. WWW 2017.

    Example:
        >>> from transcf import CML, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = CML(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "CML"
    geometry: ClassVar[Literal["dot", "distance"]] = "distance"
    cure: ClassVar[str] = "learning_rate (or covariance)"
    rules: ClassVar[dict[str, Rule]] = {
        "dim": Number(low=1, high=4096, whole=True),
        "learning_rate": Number(low=0, above=True),
        "regularization": Number(low=0),
        "margin": Number(low=0),
        "negatives": Number(low=1, high=1000, whole=True),
        "rank_weighting": Flag(),
        "covariance": Number(low=0),
        "bound_after": Choice(("step", "epoch")),
        "samples_per_user": Number(low=1, whole=True, optional=True),
        "init_scale": Number(low=0, above=True),
        **ITERATION_RULES,
    }

    def __init__(
        self,
        *,
        dim: int = 64,
        learning_rate: float = 0.01,
        regularization: float = 0.0,
        margin: float = 1.0,
        negatives: int = 20,
        rank_weighting: bool = True,
        covariance: float = 0.0,
        bound_after: BoundAfter = "step",
        samples_per_user: int | None = None,
        init_scale: float = 0.1,
        epochs: int = 40,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        self.dim = dim
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.margin = margin
        self.negatives = negatives
        self.rank_weighting = rank_weighting
        self.covariance = covariance
        self.bound_after = bound_after
        self.samples_per_user = samples_per_user
        self.init_scale = init_scale
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    def _trainable(self, train: Interactions) -> PairwiseSolver:
        loss = HingeLoss(
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            margin=self.margin,
            negatives=self.negatives,
            rank_weighting=self.rank_weighting,
            covariance=self.covariance,
            bound_after=self.bound_after,
        )
        start = Start(self.dim, self.samples_per_user, self.init_scale, self.random_state)
        return HingeSolver(Problem.of(train), start, loss)

    def _fold_in(self, histories: sp.csr_array) -> Scores:
        vectors = super()._fold_in(histories)
        bound_rows(vectors, 1.0)
        return vectors
