"""AoBPR: BPR with adaptive oversampling of the negatives that matter."""

from __future__ import annotations

from typing import ClassVar

from transcf.data.interactions import Interactions
from transcf.models._pairwise import AdaptiveSolver, PairwiseSolver
from transcf.models._triples import Problem
from transcf.models.bpr import BPR
from transcf.models.rules import Number, Rule


class AoBPR(BPR):
    """BPR with negatives that the model ranks high: most triples of BPR teach it nothing.

    Score and loss are those of `BPR`. The item j of a triple is drawn in three steps: a factor f
    with probability ~ |x_uf| sd_f, sd_f being the standard deviation of y_if over the items; a
    rank r with probability ~ exp(-r / (rank_share I)) among I items; and j is the r-th item by
    y_jf, from the largest if x_uf is positive and from the smallest otherwise. Where the user
    has that item, the next one in the ranking is taken. Rankings are kept for a while, and for
    random parts of the items that fit the cache.

    Args:
        dim: Length of the vectors.
        learning_rate: Step size for each triple.
        regularization: L2 weight of the vectors.
        item_bias: Whether items have a bias; it has no part in the rankings.
        bias_regularization: L2 weight of the biases.
        rank_share: Scale of the ranks as a share of the items: smaller draws harder negatives.
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
        Rendle, Freudenthaler: Improving Pairwise Learning for Item Recommendation from Implicit
        Feedback. WSDM 2014.

    Example:
        >>> from transcf import AoBPR, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = AoBPR(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "AoBPR"
    rules: ClassVar[dict[str, Rule]] = {
        **BPR.rules,
        "rank_share": Number(low=0, high=10, above=True),
    }

    def __init__(
        self,
        *,
        dim: int = 64,
        learning_rate: float = 0.05,
        regularization: float = 0.02,
        item_bias: bool = True,
        bias_regularization: float = 0.02,
        rank_share: float = 0.5,
        samples_per_user: int | None = None,
        init_scale: float = 0.1,
        epochs: int = 40,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        super().__init__(
            dim=dim,
            learning_rate=learning_rate,
            regularization=regularization,
            item_bias=item_bias,
            bias_regularization=bias_regularization,
            samples_per_user=samples_per_user,
            init_scale=init_scale,
            epochs=epochs,
            validate_every=validate_every,
            patience=patience,
            random_state=random_state,
            n_threads=n_threads,
        )
        self.rank_share = rank_share

    def _trainable(self, train: Interactions) -> PairwiseSolver:
        return AdaptiveSolver(Problem.of(train), self._start(), self._logistic(), self.rank_share)
