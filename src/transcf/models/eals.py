"""eALS: element-wise least squares with popular items as likelier negatives, and online."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from transcf.data.csr import offsets
from transcf.data.interactions import Interactions
from transcf.data.readers import as_interactions
from transcf.data.training_data import Growth
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.kernels.als_elements import Arrivals, descend_rows, learn_online
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.models.alternation import (
    ALSObjective,
    ALSProblem,
    Alternation,
    LeastSquaresFoldIn,
    weighted_gram,
)
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.factors import Factors, first_vectors, stored_factors
from transcf.models.families import LeastSquaresSettings, LogSizes
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.ials import UNOBSERVED_RATIO
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun

#: Standard deviation of the first vectors, as in the paper.
_START = 0.01
#: The default of `regularization` as a share of the largest singular value.
_RIDGE_SHARE = 0.05


@settings()
class EALSSettings(LeastSquaresSettings):
    """Hyper-parameters of eALS."""

    _resumable: ClassVar[tuple[str, ...]] = ("epochs", "patience", "online_steps", "w_new")
    unobserved_weight: float | None = setting(
        None,
        "c_0, the weight of all that a user did not touch together; None takes "
        f"{UNOBSERVED_RATIO} times the mean number of events of a user.",
        above=0,
    )
    popularity_power: float = setting(
        0.0,
        "How much more of it falls on popular items; 0 for the same on all. The paper takes 0.4 to "
        "0.5; in time order and full ranking 0 was better (MovieTweetings, MovieLens "
        "latest-small).",
        low=0,
    )
    regularization: float | None = setting(
        None,
        "L2 weight: it makes the vector of a short history unique. Vectors shrink to nothing where "
        "it is above the largest singular value of the interactions; None takes "
        f"{_RIDGE_SHARE:g} times an estimate of that, sqrt(sum of n_u^2 * sum of n_i^2) / n with "
        "n_u and n_i the events of users and items and n all events.",
        above=0,
    )
    online_steps: int = setting(
        1, "Updates of the user and the item of each new interaction in `partial_fit`.", low=1
    )
    w_new: float = setting(
        4.0, "Weight of a new interaction; those of `fit` weigh 1 on average.", above=0
    )

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with the defaults that depend on the data."""
        weight = self.unobserved_weight or UNOBSERVED_RATIO * sizes.per_user
        ridge = self.regularization or _RIDGE_SHARE * sizes.largest_singular_value
        return replace(self, unobserved_weight=weight, regularization=ridge)


class EALS(Recommender[EALSSettings]):
    """Element-wise least squares: scores near 1 for observed pairs, near 0 for all others.

    Formula: `score(u, i) = x_u . y_i`. With S the observed pairs and f_i the interactions of item
    i, minimise

        sum over (u, i) in S of w_ui (x_u . y_i - 1)^2
        + sum over (u, i) not in S of c_i (x_u . y_i)^2
        + regularization * (sum over u of |x_u|^2 + sum over i of |y_i|^2)
        where c_i = unobserved_weight * f_i^popularity_power / sum over j of f_j^popularity_power

    and w_ui is 1 unless `recency`, `half_life` or `confidence` weigh events (1 on average over all
    of them).

    An epoch goes once through the numbers of every x_u and then of every y_i, each set to its
    minimum while all others stay: O(dim^2) per row and O(dim) per interaction, where an exact
    solution takes O(dim^3) per row. `partial_fit` takes in new interactions as they arrive.
    New users get the exact solution for their history; if the model was fitted on timed data,
    `recency` weights their events, 1 on average over each history.

    Reference: He, Zhang, Kan and Chua, "Fast matrix factorization for online recommendation with
    implicit feedback" (SIGIR 2016).

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_weights_: c, (n_items,) float32.
        interaction_weights_: Weight of each seen item of each user, (n_interactions,) float32;
            empty where all weigh 1, until `partial_fit`.

    Example:
        >>> import polars as pl
        >>> from transcf import EALS, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> model = EALS(dim=2, unobserved_weight=0.5, regularization=0.01).fit(log)
        >>> model.recommend("bob", k=1)["item_id"].item()
        'y'
        >>> today = read_interactions(pl.DataFrame({"user": ["dan"], "item": ["x"]}))
        >>> model.partial_fit(today).recommend("dan", k=1)["item_id"].item()
        'y'
    """

    name = "eALS"
    _divergence_hint: ClassVar[str] = "dim, or raise regularization"
    _runtime_params: ClassVar[tuple[str, ...]] = ("online_steps", "w_new")
    __init__ = init_from_params(EALSSettings)

    #: Defaults of `unobserved_weight` and `regularization` depend on the data.
    _revision: ClassVar[int] = 2
    _supports_distributed: ClassVar[bool] = True

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings, by_user = run.settings, run.train.by_user
        by_item = run.train.by_item
        weights = weights_of_items(settings, by_item.counts)
        goal = objective(settings, weights, by_user.counts)
        events = InteractionWeights.of(run.train, settings.event_weights)
        pairs = ALSProblem(by_user, by_item, goal, (events.overall, events.of_item_entries))
        extras = {"item_weights": weights, "interaction_weights": events.overall}

        def restore(arrays: Arrays, known: TrainingData, settings: EALSSettings) -> FittedScorer:
            return self._restore(arrays | extras, known, settings)

        return run.run(run.solver(EALSTraining, pairs), restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: EALSSettings) -> FittedScorer:
        vectors = stored_factors(arrays, known, settings.dim)
        weights = checked(arrays, "item_weights", np.float32, (len(known.items),))
        given = arrays.get("interaction_weights")
        size = len(known.seen.indices) if given is not None and len(given) else 0
        own = checked(arrays, "interaction_weights", np.float32, (size,))
        goal = partial(objective, settings, weights)
        recency = settings.event_weights.recency if known.timed else 0.0
        fold = LeastSquaresFoldIn(vectors[1], goal, recency)
        extras = {"item_weights": weights, "interaction_weights": own}
        return Factors(known, self.name, *vectors, fold, extras=extras)

    # -- new interactions --------------------------------------------------------------------

    def partial_fit(self, log: Any) -> Self:
        """Learn from new interactions, one after the other, without training again.

        Each sets the vectors of its user and of its item to their coordinate-wise minima,
        `online_steps` times, with weight `w_new`; all other vectors stay as they are. New users
        and items begin with a random vector, and a new item has the mean c_i of those with
        interactions. The order is that of the timestamps, or of the log where there are none, and
        interactions that are known already change nothing. Rows are in the order of ids, so row
        numbers do change.

        Args:
            log: New interactions, with old or new ids, in any form that `fit` takes.

        Example:
            >>> import polars as pl
            >>> from transcf import EALS, read_interactions, synthesize
            >>> model = EALS(dim=8, epochs=1).fit(synthesize())
            >>> today = read_interactions(pl.DataFrame({"user": ["new"], "item": ["i001"]}))
            >>> model.partial_fit(today).recommend("new", k=3).shape
            (3, 4)
        """
        self._check_growing()
        log, learned, settings = as_interactions(log), self._without_trend(), self.settings_
        assert isinstance(learned, Factors), "eALS learns nothing else"
        growth = Growth.of(learned.known, log)
        seed = [settings.random_state, self.additions_ + 1]
        arrays = learn_log(learned, growth, log, settings, seed)
        return self._add(self._restore(arrays, growth.known, settings), log)


class EALSTraining(Alternation):
    """The alternation of eALS."""

    def __init__(self, pairs: ALSProblem, settings: EALSSettings, **shard: Any) -> None:
        sizes = (pairs.by_user.n_rows, pairs.by_user.n_columns)
        generator = np.random.default_rng(settings.random_state)
        start = first_vectors(sizes, settings.dim, _START, generator, drawn_in=np.float32)
        super().__init__(pairs, partial(descend_rows, dim=settings.dim), *start, **shard)


def weights_of_items(settings: EALSSettings, counts: Array) -> Array:
    """c, (n_items,) float32, from the interactions of each item."""
    total = settings.unobserved_weight
    assert total is not None, "a fit resolves it"
    powers = np.where(counts > 0, counts.astype(np.float64) ** settings.popularity_power, 0.0)
    return (total * powers / powers.sum()).astype(np.float32)


def objective(settings: EALSSettings, item_weights: Array, user_counts: Array) -> ALSObjective:
    """What is minimised, given c and the interactions of each user."""
    assert settings.regularization is not None, "a fit resolves it"
    return ALSObjective(
        missing=item_weights,
        spared=item_weights,
        user_ridges=np.full(len(user_counts), settings.regularization),
        item_ridges=np.full(len(item_weights), settings.regularization),
    )


def learn_log(
    learned: Factors, growth: Growth, log: Interactions, settings: EALSSettings, seed: list[int]
) -> Arrays:
    """Return the arrays after learning from new events of a log, oldest first."""
    dtype: np.dtype[Any] = learned.users.dtype
    generator = np.random.default_rng(seed)
    seen, item_weights = learned.known.seen, learned.extras["item_weights"]
    weights = learned.extras["interaction_weights"]
    old = growth.places(growth.old_users[seen.entry_rows], growth.old_items[seen.indices])
    targets = np.full(len(growth.known.seen.indices), settings.w_new, dtype)
    targets[old] = weights if len(weights) else 1
    order, turns = _turns(growth, log, old)
    grown = growth.known.seen
    by_user = (grown.indptr, grown.indices, turns, targets)
    place = np.argsort(grown.indices, kind="stable")
    item_indptr = offsets(np.bincount(grown.indices, minlength=grown.n_columns))
    by_item = (item_indptr, grown.entry_rows[place], turns[place], targets[place])
    known_users = growth.of_users(seen.counts > 0)
    known_items = growth.of_items(learned.known.rankable)
    new_users = (np.diff(by_user[0]) > 0) & ~known_users
    new_items = (np.diff(by_item[0]) > 0) & ~known_items
    missing = growth.of_items(item_weights)
    missing[new_items] = float(item_weights[learned.rankable].mean(dtype=np.float64))
    users, items = growth.of_users(learned.users), growth.of_items(learned.items)
    for vectors, new in ((users, new_users), (items, new_items)):
        size = np.count_nonzero(new), vectors.shape[1]
        vectors[new] = _START * generator.standard_normal(size)
    width, dim = padded_width(users.shape[1]), users.shape[1]
    flat_users, flat_items = padded(users), padded(items)
    user_gram = weighted_gram(flat_users, width, known_users.astype(dtype))
    item_gram = weighted_gram(flat_items, width, missing * known_items)
    learn_online(
        growth.event_users[order], growth.event_items[order],
        Arrivals(*by_user, user_gram, known_users), Arrivals(*by_item, item_gram, known_items),
        missing, dtype.type(settings.regularization), settings.online_steps, width, dim, flat_users,
        flat_items,
    )  # fmt: skip
    return {
        "user_vectors": unpadded(flat_users, width, dim),
        "item_vectors": unpadded(flat_items, width, dim),
        "item_weights": missing,
        "interaction_weights": targets,
    }


def _turns(growth: Growth, log: Interactions, old: Array) -> tuple[Array, Array]:
    """Return the new events, oldest first, and the turn of each interaction, -1 for old ones."""
    turns = np.zeros(len(growth.known.seen.indices), np.int64)
    turns[old] = -1
    when = log.positions if log.timestamps is None else log.timestamps
    order = np.argsort(when, kind="stable")
    places = growth.places(growth.event_users[order], growth.event_items[order])
    is_new = turns[places] == 0
    turns[places[is_new]] = np.arange(np.count_nonzero(is_new))
    return order[is_new], turns
