"""What TransCF learns, and what both of its solvers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.neighborhood import row_means
from transcf.models.training import EpochStats
from transcf.models.transcf.settings import TransCFSettings
from transcf.models.triples import Problem
from transcf.models.vectors import first_vectors


@dataclass(frozen=True)
class Parameters:
    """The learned arrays: users (n_users, dim), items (n_items, dim), item_bias (n_items,)."""

    users: Array
    items: Array
    item_bias: Array

    def copy(self) -> Self:
        """The same values in new memory."""
        return type(self)(self.users.copy(), self.items.copy(), self.item_bias.copy())

    def descend(self, rate: float, bias_rate: float, gradient: Parameters) -> None:
        """Take a step against a gradient, in place."""
        self.users[:] -= rate * gradient.users
        self.items[:] -= rate * gradient.items
        self.item_bias[:] -= bias_rate * gradient.item_bias


def neighborhoods(by_user: Csr, by_item: Csr, parameters: Parameters) -> tuple[Array, Array]:
    """The mean item of every user, (n_users, dim), and the mean user of every item."""
    q = row_means(by_user.indptr, by_user.indices, parameters.items)
    n = row_means(by_item.indptr, by_item.indices, parameters.users)
    return q, n


def first_parameters(
    problem: Problem, settings: TransCFSettings, dtype: npt.DTypeLike = np.float32
) -> Parameters:
    """Normal vectors of standard deviation `init_scale`, and biases of zero."""
    sizes = (problem.n_users, problem.n_items)
    generator = np.random.default_rng(settings.random_state)
    users, items = first_vectors(sizes, settings.dim, settings.init_scale, generator, dtype)
    return Parameters(users, items, np.zeros(problem.n_items, dtype))


class Solver(ABC):
    """Trains in epochs; a subclass says what an epoch does.

    Args:
        problem: What to learn from.
        settings: The model's.
        drawn: Whether to begin with vectors of its own; else it is given some before it trains.
    """

    def __init__(self, problem: Problem, settings: TransCFSettings, drawn: bool = True) -> None:
        """Draw the first vectors."""
        self.problem, self.settings = problem, settings
        if drawn:
            self._parameters = first_parameters(problem, settings)

    @abstractmethod
    def epoch(self, parameters: Parameters, number: int) -> tuple[Parameters, EpochStats]:
        """Train one epoch; `parameters` stay as they are, the result is new.

        Args:
            parameters: Where to start, float32 or float64.
            number: Names the epoch's random numbers.

        Returns:
            The parameters after the epoch, bounded to the ball, and what happened.
        """

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch."""
        self._parameters, stats = self.epoch(self._parameters, number)
        return stats

    def tensors(self) -> Arrays:
        """Return `user_vectors`, `item_vectors` and `item_bias`."""
        learned = self._parameters
        return {
            "user_vectors": learned.users,
            "item_vectors": learned.items,
            "item_bias": learned.item_bias,
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Go on from these."""
        names = ("user_vectors", "item_vectors", "item_bias")
        # Kernels are compiled anew for what they may not write to.
        found = (np.require(tensors[name], requirements="W") for name in names)
        self._parameters = Parameters(*found)


def stats_of(loss: float, triples: int, finite: bool) -> EpochStats:
    """What an epoch reports: the mean loss of a triple, NaN if any number is not finite."""
    return EpochStats(loss / max(1, triples) if finite else float("nan"), triples)
