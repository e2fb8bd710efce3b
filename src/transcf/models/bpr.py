"""BPR: Bayesian personalized ranking of matrix factors."""

from __future__ import annotations

from typing import ClassVar

from transcf.data.interactions import Interactions
from transcf.models._pairwise import LogisticLoss, LogisticSolver, PairwiseSolver, Start
from transcf.models._triples import Problem
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Flag, Number, Rule
from transcf.models.vectors import VectorRecommender


class BPR(VectorRecommender):
    """Matrix factors learned from pairs of items: each user's own should come before others.

    With user vectors x_u, item vectors y_i and item biases c_i, the score is

        s(u, i) = x_u . y_i + c_i

    (c_i only with `item_bias`). Learned by stochastic gradient descent on triples of a user u, an
    item i of theirs and an item j that is not, drawn evenly:

        -ln sigma(s(u, i) - s(u, j)) + regularization / 2 (|x_u|^2 + |y_i|^2 + |y_j|^2)
            + bias_regularization / 2 (c_i^2 + c_j^2)

    The loss in `history_` is the first term. Items without training interactions are never drawn,
    scored or recommended; users without any count as unknown.

    Args:
        dim: Length of the vectors.
        learning_rate: Step size for each triple.
        regularization: L2 weight of the vectors.
        item_bias: Whether items have a bias.
        bias_regularization: L2 weight of the biases.
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
        item_bias_: c, (n_items,) float32.

    References:
        Rendle, Freudenthaler, Gantner, Schmidt-Thieme: BPR: Bayesian Personalized Ranking from
        Implicit Feedback. UAI 2009.

    Example:
        >>> from transcf import BPR, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = BPR(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "BPR"
    rules: ClassVar[dict[str, Rule]] = {
        "dim": Number(low=1, high=4096, whole=True),
        "learning_rate": Number(low=0, above=True),
        "regularization": Number(low=0),
        "item_bias": Flag(),
        "bias_regularization": Number(low=0),
        "samples_per_user": Number(low=1, whole=True, optional=True),
        "init_scale": Number(low=0, above=True),
        **ITERATION_RULES,
    }

    def __init__(
        self,
        *,
        dim: int = 64,
        learning_rate: float = 0.05,
        regularization: float = 0.02,
        item_bias: bool = True,
        bias_regularization: float = 0.02,
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
        self.item_bias = item_bias
        self.bias_regularization = bias_regularization
        self.samples_per_user = samples_per_user
        self.init_scale = init_scale
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    def _trainable(self, train: Interactions) -> PairwiseSolver:
        return LogisticSolver(Problem.of(train), self._start(), self._logistic())

    def _start(self) -> Start:
        return Start(self.dim, self.samples_per_user, self.init_scale, self.random_state)

    def _logistic(self) -> LogisticLoss:
        return LogisticLoss(
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            item_bias=self.item_bias,
            bias_regularization=self.bias_regularization,
        )
