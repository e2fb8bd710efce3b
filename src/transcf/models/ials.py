"""iALS: matrix factorization by least squares over all pairs of users and items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from transcf.kernels import Array
from transcf.models._als import AlternatingRecommender, Objective, cholesky, conjugate
from transcf.models._als.alternation import Solver
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Choice, Number, Rule


class IALS(AlternatingRecommender):
    """Scores near 1 for what was observed, and near 0 for everything, in alternation.

    Formula: `score(u, i) = x_u . y_i`. With S the observed pairs, N_u the items of u, N_i the
    users of i, and U and I the users and items with interactions, minimise

        sum over (u, i) in S of (x_u . y_i - 1)^2
        + unobserved_weight * sum over u in U and i in I of (x_u . y_i)^2
        + regularization * sum over u of (|N_u| + unobserved_weight |I|)^nu |x_u|^2
        + regularization * sum over i of (|N_i| + unobserved_weight |U|)^nu |y_i|^2

    An epoch solves (or improves) all x_u with the y_i fixed, then all y_i. With "cholesky" every
    row is solved exactly in O(dim^3); with "cg" by steps of conjugate gradient that begin at the
    row's last vector, O(dim^2) each, which is quicker and comes as far after a few epochs. People
    the model was not fitted on get the exact solution for their history.

    Reference: Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets"
    (ICDM 2008); Rendle, Krichene, Zhang and Koren, "Revisiting the performance of iALS on item
    recommendation benchmarks" (RecSys 2022) for the regularization; Takacs, Pilaszy and Tikk,
    "Applications of the conjugate gradient method for implicit feedback collaborative filtering"
    (RecSys 2011).

    Args:
        dim: Length of the vectors.
        unobserved_weight: Weight of all pairs beside the observed ones.
        regularization: L2 weight.
        nu: How much more the vectors of frequent users and items are bounded: 1 in proportion to
            their weight in the loss, 0 all the same.
        solver: "cg" or "cholesky".
        cg_steps: Steps of conjugate gradient per row and epoch; "cholesky" takes none.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; the same seed gives the same bits for any number of threads.
        n_threads: Threads; None takes all.

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
    rules: ClassVar[Mapping[str, Rule]] = {
        "dim": Number(low=1, whole=True),
        "unobserved_weight": Number(low=0, above=True),
        "regularization": Number(low=0, above=True),
        "nu": Number(low=0),
        "solver": Choice(("cg", "cholesky")),
        "cg_steps": Number(low=1, whole=True),
        **ITERATION_RULES,
    }

    def __init__(
        self,
        *,
        dim: int = 64,
        unobserved_weight: float = 0.15,
        regularization: float = 0.015,
        nu: float = 1.0,
        solver: Literal["cg", "cholesky"] = "cg",
        cg_steps: int = 3,
        epochs: int = 16,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Keep the hyper-parameters."""
        self.dim = dim
        self.unobserved_weight = unobserved_weight
        self.regularization = regularization
        self.nu = nu
        self.solver = solver
        self.cg_steps = cg_steps
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    def _objective(self, user_counts: Array, item_counts: Array) -> Objective:
        weight = self.unobserved_weight
        users, items = np.count_nonzero(user_counts), np.count_nonzero(item_counts)
        return Objective(
            missing=weight * (item_counts > 0),
            spared=np.zeros(len(item_counts)),
            user_ridges=self.regularization * (user_counts + weight * items) ** self.nu,
            item_ridges=self.regularization * (item_counts + weight * users) ** self.nu,
        )

    def _solver(self) -> Solver:
        return cholesky() if self.solver == "cholesky" else conjugate(self.cg_steps)

    def _start_scale(self) -> float:
        return 0.1 / float(np.sqrt(self.dim))
