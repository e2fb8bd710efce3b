"""Hyper-parameters of TransCF, what it learns, and the base of its two solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.neighborhood import row_means
from transcf.models.event_weights import EventWeights
from transcf.models.factors import NormConstraint, first_vectors
from transcf.models.families import TripleSettings
from transcf.models.params import setting, settings
from transcf.models.training import EpochStats
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import Problem, rank_weights

#: Weight of the squared biases of a triple in the loss, if items have biases.
BIAS_DECAY = 0.01
#: Step size of biases, relative to the learning rate: a bias moves in every triple of its item.
BIAS_RATE = 0.2


@settings()
class ObjectiveSettings:
    """Hyper-parameters of the published loss."""

    margin: float = setting(1.0, "Margin of the hinge loss.", low=0)
    reg_distance: float = setting(
        0.05, "Weight of the distance between users and their items in the loss.", low=0
    )
    reg_neighborhood: float = setting(
        0.2, "Weight of the distance between vectors and their neighbourhoods in the loss.", low=0
    )


@settings(init_scale=0.01, event_weights=EventWeights(recency=4.0))
class TransCFSettings(TripleSettings, ObjectiveSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple."""

    variant: str = setting(
        "translation",
        "The score: "
        + " ".join(f'"{name}": {kind.__doc__}' for name, kind in SCORE_FUNCTIONS.items()),
        words=tuple(SCORE_FUNCTIONS),
    )
    tie_neighbors: bool = setting(
        False, "Whether the neighbourhood term also moves the neighbours, as in the paper."
    )
    negatives: int = setting(
        20, "Negative items drawn per triple, of which the hardest is used.", low=1, high=1000
    )
    rank_weighting: bool = setting(
        True, "Whether triples with more violating negatives have a larger weight."
    )
    item_bias: bool = setting(True, "Whether items have a bias.")
    neighborhood_updates: int = setting(
        4,
        "Updates of the neighbourhood means per epoch (fast solver); fewer where they would take "
        "longer than the training between them.",
        low=1,
    )
    norm_constraint: NormConstraint = setting(
        "norm",
        "Vectors are projected into the unit ball after each epoch, those of users after each "
        "visit, and within an epoch any vector that is ten times as long. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not constrain them.',
    )
    solver: Literal["fast", "exact"] = setting(
        "fast", '"exact" takes mini-batches with gradients through all neighbours.'
    )

    @property
    def title(self) -> str:
        """Name of the model in tables."""
        return SCORE_FUNCTIONS[self.variant].title

    @property
    def bias_decay(self) -> float:
        """Weight of squared biases in the loss."""
        return BIAS_DECAY

    def rank_weights(self, n_items: int) -> Array:
        """Return the weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)


@dataclass(frozen=True)
class Parameters:
    """The learned arrays: users (n_users, dim), items (n_items, dim), item_bias (n_items,)."""

    users: Array
    items: Array
    item_bias: Array

    def neighborhoods(self, by_user: Csr, by_item: Csr) -> tuple[Array, Array]:
        """Return q, (n_users, dim), and n, (n_items, dim)."""
        q = row_means(by_user.indptr, by_user.indices, self.items)
        n = row_means(by_item.indptr, by_item.indices, self.users)
        return q, n


def first_parameters(
    problem: Problem, settings: TransCFSettings, dtype: npt.DTypeLike = np.float32
) -> Parameters:
    """Draw normal vectors of standard deviation `init_scale`; biases are 0."""
    sizes = (problem.n_users, problem.n_items)
    generator = np.random.default_rng(settings.random_state)
    users, items = first_vectors(sizes, settings.dim, settings.init_scale, generator, dtype)
    return Parameters(users, items, np.zeros(problem.n_items, dtype))


class Solver(ABC):
    """Trains TransCF in epochs; a subclass defines an epoch.

    Args:
        problem: Training data.
        settings: Hyper-parameters.
        drawn: Whether to draw first vectors; otherwise `load_tensors` has to be called first.
    """

    def __init__(self, problem: Problem, settings: TransCFSettings, drawn: bool = True) -> None:
        self.problem, self.settings = problem, settings
        if drawn:
            self._parameters = first_parameters(problem, settings)

    @abstractmethod
    def epoch(self, parameters: Parameters, number: int) -> tuple[Parameters, EpochStats]:
        """Train one epoch from `parameters`, which are not changed.

        Args:
            parameters: Where to start, float32 or float64.
            number: Number of the epoch, which keys its random numbers.

        Returns:
            The parameters after the epoch, within the norm constraint, and its statistics.
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
        """Continue from these tensors."""
        names = ("user_vectors", "item_vectors", "item_bias")
        # Kernels would be compiled again for read-only arrays.
        found = (np.require(tensors[name], requirements="W") for name in names)
        self._parameters = Parameters(*found)


def stats_of(loss: float, triples: int, finite: bool) -> EpochStats:
    """Return the mean loss of a triple, NaN if any number is not finite."""
    return EpochStats(loss / max(1, triples) if finite else float("nan"), triples)
