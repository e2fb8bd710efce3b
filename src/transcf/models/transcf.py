"""TransCF: collaborative translational metric learning, and its ablations."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import polars as pl

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.models import _tables
from transcf.models._tensors import checked
from transcf.models._transcf import (
    ExactSolver,
    FastSolver,
    Hyper,
    Parameters,
    Problem,
    initial_parameters,
    neighborhoods,
)
from transcf.models._transcf.linear import item_vectors, score_pairs, user_vectors
from transcf.models._transcf.parameters import Bound, Decay, Form
from transcf.models._transcf.recency import recency_weights
from transcf.models._transcf.serving import ServedTransCF
from transcf.models.base import State
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Choice, Flag, Number, Rule
from transcf.retrieval.scorer import LazyForm, LinearForm, Scores
from transcf.training.trainable import EpochStats, Tensors

#: "emb" learns and ranks as "translation" does; only the vectors of `translation` differ.
Variant: TypeAlias = Form | Literal["emb"]

#: Pairs whose vectors are gathered at once: few enough to stay in the cache.
_PAIRS_AT_ONCE = 512

_NAMES: dict[Variant, str] = {
    "translation": "TransCF",
    "dot": "TransCF-dot",
    "alt": "TransCF-alt",
    "still": "TransCF-still",
    "emb": "TransCF-emb",
}


class TransCF(ServedTransCF):
    """Users are translated toward items by a vector made from both neighbourhoods.

    With user vectors a_u, item vectors b_i, q_u the mean of b over the user's items and n_i the
    mean of a over the item's users, the score is

        s(u, i) = -|a_u + q_u * n_i - b_i|^2 + c_i

    (c_i only with `item_bias`). Learned from triples of a user u, an item i of theirs and an
    item j that is not, by stochastic gradient descent on

        w max(0, margin - s(u, i) + s(u, j)) + reg_distance |a_u + q_u * n_i - b_i|^2
            + reg_neighborhood (|a_u - q_u|^2 + |b_i - n_i|^2)

    where j is the hardest of `negatives` drawn items and w grows with the estimated rank of i
    if `rank_weighting` is set (w = 1 otherwise). Items without training interactions are never
    drawn, scored or recommended; users without any count as unknown.

    The defaults were chosen on validation data in full ranking (`make study-defaults`);
    `TransCF.paper` has the settings of the publication.

    Args:
        form: "translation", or an ablation: "dot" (inner product instead of distance), "alt"
            (translation a_u * b_i instead of q_u * n_i), "still" (no translation), "emb" (as
            "translation", but `translation()` returns a_u - b_i).
        dim: Length of the vectors.
        learning_rate: Step size for each triple.
        decay: "linear" lowers the learning rate evenly over the epochs, "none" keeps it.
        margin: How much nearer than j the item i should be.
        reg_distance: Pulls users and their items together.
        reg_neighborhood: Pulls vectors to the means of their neighbourhoods.
        tie_neighbors: Whether that pull moves the neighbours, too, as in the paper.
        samples_per_user: Triples per user and epoch; None draws as many as the user has items.
        recency: How much more often a user's later items are drawn as i: an item at the share p
            of the user's history (1 is the latest) has the weight exp(recency * p). Without
            timestamps, or at 0, all weigh the same.
        negatives: Items drawn to choose the hardest from.
        rank_weighting: Whether violations by many of the drawn items weigh more.
        item_bias: Whether items have a bias.
        refresh: How often per epoch the neighbourhood means are renewed (fast solver); less often
            where that would take longer than the training in between.
        bound: Vectors are brought into the unit ball after each epoch: "norm" divides by the
            norm, "squared" by the squared norm (as printed in the paper), "none" does not.
        init_scale: Standard deviation of the first vectors.
        solver: "fast", or "exact": mini-batches with gradients through all neighbours.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; the same seed gives the same bits for any number of threads.
        n_threads: Threads for training; None uses all.

    Attributes (after `fit`):
        user_vectors_: a, (n_users, dim) float32.
        item_vectors_: b, (n_items, dim) float32.
        user_neighborhoods_: q, (n_users, dim) float32.
        item_neighborhoods_: n, (n_items, dim) float32.
        item_bias_: c, (n_items,) float32.

    References:
        Park, Kim, Xie, Yu: Collaborative Translational Metric Learning. ICDM 2018.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = TransCF(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    cure: ClassVar[str] = "learning_rate (or margin, reg_distance, reg_neighborhood)"
    # The decay of the learning rate depends on the number of epochs.
    free_to_change: ClassVar[tuple[str, ...]] = ("patience", "n_threads")
    rules: ClassVar[dict[str, Rule]] = {
        "form": Choice(tuple(_NAMES)),
        "dim": Number(low=1, high=4096, whole=True),
        "learning_rate": Number(low=0, above=True),
        "decay": Choice(("linear", "none")),
        "margin": Number(low=0),
        "reg_distance": Number(low=0),
        "reg_neighborhood": Number(low=0),
        "tie_neighbors": Flag(),
        "samples_per_user": Number(low=1, whole=True, optional=True),
        "recency": Number(low=0, high=50),
        "negatives": Number(low=1, high=1000, whole=True),
        "rank_weighting": Flag(),
        "item_bias": Flag(),
        "refresh": Number(low=1, whole=True),
        "bound": Choice(("norm", "squared", "none")),
        "init_scale": Number(low=0, above=True),
        "solver": Choice(("fast", "exact")),
        **ITERATION_RULES,
    }

    def __init__(
        self,
        *,
        form: Variant = "translation",
        dim: int = 64,
        learning_rate: float = 0.05,
        decay: Decay = "linear",
        margin: float = 1.0,
        reg_distance: float = 0.05,
        reg_neighborhood: float = 0.2,
        tie_neighbors: bool = False,
        samples_per_user: int | None = None,
        recency: float = 4.0,
        negatives: int = 20,
        rank_weighting: bool = True,
        item_bias: bool = True,
        refresh: int = 4,
        bound: Bound = "norm",
        init_scale: float = 0.01,
        solver: Literal["fast", "exact"] = "fast",
        epochs: int = 30,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        self.form = form
        self.dim = dim
        self.learning_rate = learning_rate
        self.decay = decay
        self.margin = margin
        self.reg_distance = reg_distance
        self.reg_neighborhood = reg_neighborhood
        self.tie_neighbors = tie_neighbors
        self.samples_per_user = samples_per_user
        self.recency = recency
        self.negatives = negatives
        self.rank_weighting = rank_weighting
        self.item_bias = item_bias
        self.refresh = refresh
        self.bound = bound
        self.init_scale = init_scale
        self.solver = solver
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name in tables: that of the ablation."""
        return _NAMES.get(self.form, "TransCF")

    # -- learning ----------------------------------------------------------------------------

    @property
    def _form(self) -> Form:
        """The score that is learned."""
        return "translation" if self.form == "emb" else self.form

    def _hyper(self) -> Hyper:
        return Hyper(
            form=self._form,
            dim=self.dim,
            learning_rate=self.learning_rate,
            margin=self.margin,
            reg_distance=self.reg_distance,
            reg_neighborhood=self.reg_neighborhood,
            tie_neighbors=self.tie_neighbors,
            decay=self.decay,
            epochs=self.epochs,
            samples_per_user=self.samples_per_user,
            negatives=self.negatives,
            rank_weighting=self.rank_weighting,
            item_bias=self.item_bias,
            refresh=self.refresh,
            bound=self.bound,
            init_scale=self.init_scale,
            seed=self.random_state,
        )

    def _trainable(self, train: Interactions) -> _Training:
        problem = Problem.of(train, recency_weights(train, self.recency))
        self.report_["timestamps"] = train.timestamps is not None
        hyper = self._hyper()
        solver = FastSolver if self.solver == "fast" else ExactSolver
        self._problem = problem
        return _Training(solver(problem, hyper), initial_parameters(problem, hyper))

    def _learn(self, *args: Any) -> None:
        try:
            super()._learn(*args)
        finally:
            self._problem = None

    def _adopt(self, tensors: Tensors) -> None:
        assert self._problem is not None, "tensors are adopted during training only"
        q, n = neighborhoods(self._problem, Parameters(**tensors))
        self._restore(
            {
                "user_vectors": tensors["users"],
                "item_vectors": tensors["items"],
                "user_neighborhoods": q,
                "item_neighborhoods": n,
                "item_bias": tensors["item_bias"],
            }
        )

    # -- scoring -----------------------------------------------------------------------------

    def linear_form(self) -> LinearForm:
        """Return the score as inner products, users when they are asked for."""
        if self._linear is None:
            form, a, q = self._form, self.user_vectors_, self.user_neighborhoods_
            y = item_vectors(form, self.item_vectors_, self.item_neighborhoods_, self.item_bias_)
            self._linear = LazyForm(y, lambda users: user_vectors(form, a[users], q[users]))
        return self._linear

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        scores = np.empty(len(users), np.float32)
        for start in range(0, len(users), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            u, i = users[some], items[some]
            scores[some] = score_pairs(
                self._form,
                self.user_vectors_[u],
                self.user_neighborhoods_[u],
                self.item_vectors_[i],
                self.item_neighborhoods_[i],
                self.item_bias_[i],
            )
        return scores

    def translation(self, pairs: Any) -> pl.DataFrame:
        """Return the translation vector of each pair.

        Args:
            pairs: Table with user and item columns, in any form that `read_interactions` takes.

        Returns:
            Table `user_id, item_id, translation` (a list of `dim` numbers), in the given order.
        """
        self._check_fitted()
        user_ids, item_ids, users, items = _tables.pair_rows(self, pairs)
        if self.form == "emb":
            vectors = self.user_vectors_[users] - self.item_vectors_[items]
        elif self.form == "alt":
            vectors = self.user_vectors_[users] * self.item_vectors_[items]
        elif self.form == "still":
            vectors = np.zeros((len(users), self.dim), np.float32)
        else:
            vectors = self.user_neighborhoods_[users] * self.item_neighborhoods_[items]
        return pl.DataFrame(
            {
                "user_id": user_ids,
                "item_id": item_ids,
                "translation": pl.Series(vectors, dtype=pl.Array(pl.Float32, self.dim)),
            }
        )

    # -- files -------------------------------------------------------------------------------

    _linear: LinearForm | None = None
    _problem: Problem | None = None

    def _state(self) -> State:
        return {
            "user_vectors": self.user_vectors_,
            "item_vectors": self.item_vectors_,
            "user_neighborhoods": self.user_neighborhoods_,
            "item_neighborhoods": self.item_neighborhoods_,
            "item_bias": self.item_bias_,
        }

    def _restore(self, state: State) -> None:
        users, items = (len(self.users_), self.dim), (len(self.items_), self.dim)
        self.user_vectors_ = checked(state, "user_vectors", np.float32, users)
        self.item_vectors_ = checked(state, "item_vectors", np.float32, items)
        self.user_neighborhoods_ = checked(state, "user_neighborhoods", np.float32, users)
        self.item_neighborhoods_ = checked(state, "item_neighborhoods", np.float32, items)
        self.item_bias_ = checked(state, "item_bias", np.float32, items[:1])
        self._linear = None


class _Training:
    """A solver and its parameters, as the loop wants them."""

    def __init__(self, solver: FastSolver | ExactSolver, parameters: Parameters) -> None:
        self._solver, self._parameters = solver, parameters

    def run_epoch(self, number: int) -> EpochStats:
        self._parameters, stats = self._solver.epoch(self._parameters, number)
        return EpochStats(stats.loss if stats.finite else float("nan"), stats.triples)

    def tensors(self) -> Tensors:
        return {
            "users": self._parameters.users,
            "items": self._parameters.items,
            "item_bias": self._parameters.item_bias,
        }

    def load_tensors(self, tensors: Tensors) -> None:
        self._parameters = Parameters(**tensors)
