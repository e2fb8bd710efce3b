"""What is learned, from what, and how: the values that both solvers share."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from transcf.kernels import Array
from transcf.kernels.neighborhood import bound_rows, row_means
from transcf.models._triples import Problem, first_vectors, rank_weights

Decay = Literal["none", "linear"]
Form = Literal["translation", "still", "alt", "dot"]
Bound = Literal["norm", "squared", "none"]

_BOUND_POWERS: dict[Bound, float] = {"none": 0.0, "norm": 1.0, "squared": 2.0}

# A bias moves in every triple of its item, always the same way: it takes shorter steps.
BIAS_RATE = 0.2


@dataclass(frozen=True)
class Hyper:
    """Settings of a solver; learning rate and regularizers are per triple (sums, not means).

    `bias_decay` pulls biases gently to zero: bias_decay * (c_i^2 + c_j^2) per triple.
    """

    form: Form = "translation"
    dim: int = 64
    learning_rate: float = 0.02
    margin: float = 2.0
    reg_distance: float = 0.1
    reg_neighborhood: float = 0.1
    samples_per_user: float | None = 100.0
    negatives: int = 1
    rank_weighting: bool = False
    item_bias: bool = False
    bias_decay: float = 0.01
    tie_neighbors: bool = True
    decay: Decay = "none"
    epochs: int = 1
    refresh: int = 2
    bound: Bound = "norm"
    init_scale: float = 0.01
    seed: int = 0

    def rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 1; linear decay would reach 0 after the last."""
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)

    def rank_weights(self, n_items: int) -> Array:
        """Weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)


@dataclass(frozen=True)
class Parameters:
    """The learned arrays: users (n_users, dim), items (n_items, dim), item_bias (n_items,)."""

    users: Array
    items: Array
    item_bias: Array

    def copy(self) -> Self:
        """The same values in new memory."""
        return type(self)(self.users.copy(), self.items.copy(), self.item_bias.copy())

    def descend(self, rate: float, gradient: "Parameters") -> None:
        """Take a step against a gradient, in place."""
        self.users[:] -= rate * gradient.users
        self.items[:] -= rate * gradient.items
        self.item_bias[:] -= BIAS_RATE * rate * gradient.item_bias


@dataclass(frozen=True)
class EpochStats:
    """What an epoch reports: mean loss per triple, triples, share with an active hinge."""

    loss: float
    triples: int
    active: float
    finite: bool


def neighborhoods(problem: Problem, parameters: Parameters) -> tuple[Array, Array]:
    """The mean item of every user, (n_users, dim), and the mean user of every item."""
    q = row_means(problem.user_indptr, problem.user_indices, parameters.items)
    n = row_means(problem.item_indptr, problem.item_indices, parameters.users)
    return q, n


def initial_parameters(
    problem: Problem, hyper: Hyper, dtype: npt.DTypeLike = np.float32
) -> Parameters:
    """Normal embeddings of standard deviation `init_scale`, and biases of zero."""
    users, items = first_vectors(problem, hyper.dim, hyper.init_scale, hyper.seed, dtype)
    return Parameters(users, items, np.zeros(problem.n_items, dtype))


def bound(matrix: Array, how: Bound) -> bool:
    """Bring rows into the unit ball, in place; tells whether all of them are finite."""
    squared_norms = bound_rows(matrix, _BOUND_POWERS[how])
    return bool(np.isfinite(squared_norms).all())
