"""iALS: matrix factorization by least squares over all pairs of users and items."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.als import conjugate_gradient, solve_rows
from transcf.models.alternation import ALSObjective, ALSProblem, Alternation, LeastSquaresFoldIn
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.factors import Factors, first_vectors, stored_factors
from transcf.models.families import LeastSquaresSettings, LogSizes
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun

#: By default all pairs together weigh this many times as much as all events.
UNOBSERVED_RATIO = 16


@settings()
class IALSSettings(LeastSquaresSettings):
    """Hyper-parameters of iALS."""

    unobserved_weight: float | None = setting(
        None,
        "Weight of every pair, observed or not, next to that of an event; None takes "
        f"{UNOBSERVED_RATIO} times the density of the log, so that all pairs together weigh "
        f"{UNOBSERVED_RATIO} times as much as all events.",
        above=0,
    )
    regularization: float = setting(0.015, "L2 weight.", above=0)
    nu: float = setting(
        1.0,
        "How much more the vectors of frequent users and items are bounded: 1 in proportion to "
        "their weight in the loss, 0 all the same.",
        low=0,
    )
    solver: Literal["cg", "cholesky"] = setting("cg", "How a row is solved.")
    cg_steps: int = setting(
        3, "Steps of conjugate gradient per row and epoch; cholesky takes none.", low=1, high=1000
    )

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with the defaults that depend on the data."""
        weight = self.unobserved_weight or UNOBSERVED_RATIO * sizes.density
        return replace(self, unobserved_weight=weight)


class IALS(Recommender[IALSSettings]):
    """Implicit alternating least squares: scores near 1 for observed pairs, near 0 for all.

    Formula: `score(u, i) = x_u . y_i`. With S the observed pairs, N_u the items of u, N_i the
    users of i, and U and I the users and items with interactions, minimise

        sum over (u, i) in S of w_ui (x_u . y_i - 1)^2
        + unobserved_weight * sum over u in U and i in I of (x_u . y_i)^2
        + regularization * sum over u of (W_u + unobserved_weight |I|)^nu |x_u|^2
        + regularization * sum over i of (W_i + unobserved_weight |U|)^nu |y_i|^2

    where w_ui is 1 unless `recency`, `half_life` or `confidence` weigh events (1 on average over
    all of them), W_u the sum of w_ui over N_u, and W_i that over N_i: numbers of events if all
    weigh 1.

    An epoch solves (or improves) all x_u with the y_i fixed, then all y_i. With "cholesky" every
    row is solved exactly in O(dim^3); with "cg" by steps of conjugate gradient that begin at the
    row's last vector, O(dim^2) each, which is faster and as good after a few epochs. New users get
    the exact solution for their history; if the model was fitted on timed data, `recency` weights
    their events, 1 on average over each history.

    Reference: Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets"
    (ICDM 2008); Rendle, Krichene, Zhang and Koren, "Revisiting the performance of iALS on item
    recommendation benchmarks" (RecSys 2022) for the regularization; Takacs, Pilaszy and Tikk,
    "Applications of the conjugate gradient method for implicit feedback collaborative filtering"
    (RecSys 2011).

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.

    Example:
        >>> import polars as pl
        >>> from transcf import IALS, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> IALS(dim=2, epochs=5).fit(log).recommend("bob", k=1)["item_id"].item()
        'y'
    """

    name = "iALS"
    _divergence_hint: ClassVar[str] = "dim, or raise regularization"
    __init__ = init_from_params(IALSSettings)

    #: The default of `unobserved_weight` depends on the data.
    _revision: ClassVar[int] = 2
    _supports_distributed: ClassVar[bool] = True

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings, log = run.settings, run.train
        events = InteractionWeights.of(log, settings.event_weights)
        goal = objective(settings, events.sums_of_items, events.sums_of_users)
        weights = events.overall, events.of_item_entries
        pairs = ALSProblem(log.by_user, log.by_item, goal, weights)
        return run.run(run.solver(IALSTraining, pairs), self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: IALSSettings) -> FittedScorer:
        vectors = stored_factors(arrays, known, settings.dim)
        goal = partial(objective, settings, known.item_counts)
        recency = settings.event_weights.recency if known.timed else 0.0
        fold = LeastSquaresFoldIn(vectors[1], goal, recency)
        return Factors(known, self.name, *vectors, fold)


class IALSTraining(Alternation):
    """The alternation of iALS."""

    def __init__(self, pairs: ALSProblem, settings: IALSSettings, **shard: Any) -> None:
        sizes = (pairs.by_user.n_rows, pairs.by_user.n_columns)
        generator = np.random.default_rng(settings.random_state)
        scale = 0.1 / float(np.sqrt(settings.dim))
        start = first_vectors(sizes, settings.dim, scale, generator, drawn_in=np.float32)
        conjugate = partial(conjugate_gradient, steps=settings.cg_steps)
        solver = solve_rows if settings.solver == "cholesky" else conjugate
        super().__init__(pairs, solver, *start, **shard)


def objective(settings: IALSSettings, item_counts: Array, user_counts: Array) -> ALSObjective:
    """Return the objective, given the weights of the interactions of each item and user."""
    weight = settings.unobserved_weight
    assert weight is not None, "a fit resolves it"
    users, items = np.count_nonzero(user_counts), np.count_nonzero(item_counts)
    return ALSObjective(
        missing=weight * (item_counts > 0),
        spared=np.zeros(len(item_counts)),
        user_ridges=settings.regularization * (user_counts + weight * items) ** settings.nu,
        item_ridges=settings.regularization * (item_counts + weight * users) ** settings.nu,
    )
