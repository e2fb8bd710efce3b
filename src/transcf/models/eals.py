"""eALS: element-wise least squares with popular items as likelier negatives, and online."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.models._als import AlternatingRecommender, Alternation, Objective, elementwise
from transcf.models._als.alternation import Solver
from transcf.models._als.online import Learned, OnlineRule, learn_log
from transcf.models._growing import Growth
from transcf.models._tensors import checked
from transcf.models.base import State
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Number, Rule
from transcf.retrieval.scorer import Scores
from transcf.threads import use_threads
from transcf.training.trainable import Tensors

#: Standard deviation of the first vectors, as in the paper.
_START = 0.01


class EALS(AlternatingRecommender):
    """Scores near 1 for what was observed, near 0 for what was not, popular items above all.

    Formula: `score(u, i) = x_u . y_i`. With S the observed pairs and f_i the interactions of item
    i, minimise

        sum over (u, i) in S of (x_u . y_i - 1)^2
        + sum over (u, i) not in S of c_i (x_u . y_i)^2
        + regularization * (sum over u of |x_u|^2 + sum over i of |y_i|^2)
        where c_i = unobserved_weight * f_i^popularity_power / sum over j of f_j^popularity_power

    An epoch goes once through the numbers of every x_u and then of every y_i, each set to its
    minimum while all others stay: O(dim^2) per row and O(dim) per interaction, where an exact
    solution takes O(dim^3) per row. `partial_fit` takes in new interactions as they arrive.
    People the model was not fitted on get the exact solution for their history.

    Reference: He, Zhang, Kan and Chua, "Fast matrix factorization for online recommendation with
    implicit feedback" (SIGIR 2016).

    Args:
        dim: Length of the vectors.
        unobserved_weight: c_0, the weight of all that a user did not touch together.
        popularity_power: How much more of it falls on popular items; 0 for the same on all. The
            paper takes 0.4 to 0.5; in time order and full ranking 0 was better (MovieTweetings,
            MovieLens latest-small).
        regularization: L2 weight, above 0: it is what makes the vector of a short history unique.
            Small data want less, for vectors shrink to nothing where it is above the largest
            singular value of the interactions.
        online_steps: Updates of the user and the item of each new interaction in `partial_fit`.
        w_new: Weight of a new interaction; those of `fit` weigh 1.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; the same seed gives the same bits for any number of threads.
        n_threads: Threads; None takes all.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_weights_: c, (n_items,) float32.
        interaction_weights_: Weight of each seen item of each user, (n_interactions,) float32;
            empty until `partial_fit`: all weigh 1.

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
    rules: ClassVar[Mapping[str, Rule]] = {
        "dim": Number(low=1, whole=True),
        "unobserved_weight": Number(low=0, above=True),
        "popularity_power": Number(low=0),
        "regularization": Number(low=0, above=True),
        "online_steps": Number(low=1, whole=True),
        "w_new": Number(low=0, above=True),
        **ITERATION_RULES,
    }
    free_to_change: ClassVar[tuple[str, ...]] = (
        *AlternatingRecommender.free_to_change, "online_steps", "w_new",
    )  # fmt: skip

    item_weights_: Scores
    interaction_weights_: Scores

    def __init__(
        self,
        *,
        dim: int = 64,
        unobserved_weight: float = 512.0,
        popularity_power: float = 0.0,
        regularization: float = 6.0,
        online_steps: int = 1,
        w_new: float = 4.0,
        epochs: int = 16,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Keep the hyper-parameters."""
        self.dim = dim
        self.unobserved_weight = unobserved_weight
        self.popularity_power = popularity_power
        self.regularization = regularization
        self.online_steps = online_steps
        self.w_new = w_new
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    # -- learning ----------------------------------------------------------------------------

    def _trainable(self, train: Interactions) -> Alternation:
        self.item_weights_ = self._weights_of_items(train.by_item.counts)
        return super()._trainable(train)

    def _weights_of_items(self, counts: Array) -> Scores:
        powers = np.where(counts > 0, counts.astype(np.float64) ** self.popularity_power, 0.0)
        weights: Scores = (self.unobserved_weight * powers / powers.sum()).astype(np.float32)
        return weights

    def _objective(self, user_counts: Array, item_counts: Array) -> Objective:
        return Objective(
            missing=self.item_weights_,
            spared=self.item_weights_,
            user_ridges=np.full(len(user_counts), self.regularization),
            item_ridges=np.full(len(item_counts), self.regularization),
        )

    def _solver(self) -> Solver:
        return elementwise(self.dim)

    def _start_scale(self) -> float:
        return _START

    def _adopt(self, tensors: Tensors) -> None:
        all_the_same = np.empty(0, np.float32)
        weights = {"item_weights": self.item_weights_, "interaction_weights": all_the_same}
        self._restore(tensors | weights)

    # -- new interactions --------------------------------------------------------------------

    def partial_fit(self, log: Interactions) -> Self:
        """Learn from new interactions, one after the other, without training again.

        Each sets the vectors of its user and of its item to their coordinate-wise minima,
        `online_steps` times, with weight `w_new`; all other vectors stay as they are. New users
        and items begin with a random vector, and a new item has the mean c_i of those with
        interactions. The order is that of the timestamps, or of ids where there are none, and
        interactions that are known already change nothing. Rows are in the order of ids, so row
        numbers do change.

        Args:
            log: New interactions, with old or new ids.

        Example:
            >>> model.partial_fit(read_interactions("today.csv"))  # doctest: +SKIP
        """
        self._check_fitted()
        growth = Growth.of(self.users_, self.items_, self.seen_, log)
        additions = int(self.report_.get("additions", 0)) + 1
        weights = self.interaction_weights_
        if not len(weights):
            weights = np.ones(len(self.seen_.indices), np.float32)
        before = Learned(self.user_vectors_, self.item_vectors_, self.item_weights_, weights)
        rule = OnlineRule(
            weight=self.w_new,
            steps=self.online_steps,
            ridge=self.regularization,
            missing=float(self.item_weights_[self.item_counts_ > 0].mean(dtype=np.float64)),
            start_scale=_START,
            seed=[self.random_state, additions],
        )
        with use_threads(self.n_threads):
            after = learn_log(before, self.seen_, growth, log, rule)
        report = self.report_
        self._remember(growth.users, growth.items, growth.seen)
        self.report_ = report | self.report_ | {"additions": additions}
        self._restore(
            {
                "user_vectors": after.users,
                "item_vectors": after.items,
                "item_bias": np.zeros(len(after.items), np.float32),
                "item_weights": after.missing,
                "interaction_weights": after.targets,
            }
        )
        return self

    # -- files -------------------------------------------------------------------------------

    def _state(self) -> State:
        return super()._state() | {
            "item_weights": self.item_weights_,
            "interaction_weights": self.interaction_weights_,
        }

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.item_weights_ = checked(state, "item_weights", np.float32, (len(self.items_),))
        given = state.get("interaction_weights")
        size = len(self.seen_.indices) if given is not None and len(given) else 0
        self.interaction_weights_ = checked(state, "interaction_weights", np.float32, (size,))
