"""`FittedScorer`: the learned arrays of a model, which score users and items by row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr, Histories
from transcf.data.ids import IdMap, Rows
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays
from transcf.models.explain import Contributions, Remarks, by_leaving_out
from transcf.models.training_data import TrainingData
from transcf.retrieval.scorer import Scorer, Scores

if TYPE_CHECKING:
    from transcf.retrieval.sums import SumForm


class FittedScorer(Scorer, ABC):
    """Learned arrays and how they score; immutable.

    A subclass has `arrays`, and either `linear_form` or `_score_block`. It overrides what else it
    supports: fold-in, explanations, similar items and users.

    Args:
        known: The training data that the model keeps.
        name: Name of the model in tables and errors.
    """

    name: str

    def __init__(self, known: TrainingData, name: str) -> None:
        self.known, self.name = known, name

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached properties, which are large and cannot be pickled."""
        kinds = type(self).__mro__
        lazy = {
            n for kind in kinds for n, v in vars(kind).items() if isinstance(v, cached_property)
        }
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the arrays of a model folder, by name."""

    def stored_arrays(self) -> Arrays:
        """Return the arrays of a saved model: `arrays`, and what makes a loaded model faster."""
        return self.arrays()

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of the model, by name without the trailing underscore."""
        return self.arrays()

    @property
    def users_(self) -> IdMap:
        """User ids."""
        return self.known.users

    @property
    def items_(self) -> IdMap:
        """Item ids."""
        return self.known.items

    @property
    def seen_(self) -> Csr:
        """Items of each user in training."""
        return self.known.seen

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self.known.rankable

    # -- scores of the model's own users -----------------------------------------------------

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum over inner products, if it is one."""
        return None

    def with_bias(self, offset: Scores) -> FittedScorer | None:
        """Return a scorer with a number added to each item's bias; None if it has no biases."""
        return None

    # -- new users, explanations, similar items and users --------------------------------------

    def fold_in(self, histories: Histories) -> Scorer:
        """Return a scorer with a row for each new user, given by the items of their history."""
        raise UnsupportedError(
            f"{self.name} cannot recommend to users it was not fitted on: fit again with them, "
            "or use a model such as TransCF."
        )

    def with_histories(self, histories: Histories) -> Scorer:
        """Return a scorer of the model's users with other histories, one for each user row.

        What was learned stays as it is. By default users are folded in from these histories.
        Models that cannot compute a user's trained vector from a history override this and keep
        the vector.
        """
        return self.fold_in(histories)

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Return the same after some steps of training for each new user."""
        raise UnsupportedError(
            f"{self.name} places newcomers without any training: leave out steps={steps}."
        )

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return the effects of the items of a history, (n,) rows, on the score of an item."""
        return by_leaving_out(self.fold_in, self.known, history, item)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Return further information about a score.

        Args:
            user: Row of the user; None for a history alone.
            history: Item rows of the user, in order.
            item: Row of the item.
            top: Longest list.
        """
        return Remarks()

    def position(self, user: int | None, history: Rows) -> Scores | None:
        """Return the position of a user in the space of item vectors, (dim,), or None.

        Args:
            user: Row of the user; None for a history alone.
            history: Item rows, in order; at least one.
        """
        return None

    def translated_position(self, user: int | None, history: Rows, items: Rows) -> Scores | None:
        """Return the translated positions of a user for some items, (n, dim), or None."""
        return None

    def ways(self, user: int | None, history: Rows, item: int) -> tuple[Scores, Scores] | None:
        """Return the translated position by each past item, and its share of an item's score.

        Returns:
            Points (n, dim) and shares (n,) that add up to 1, for the n items of the history; None
            for models with one translation at most.
        """
        return None

    def item_similarity(self) -> Scorer:
        """Return a scorer of items against items."""
        raise UnsupportedError(
            f"{self.name} has neither vectors nor weights of items, so none are similar: use a "
            "model such as TransCF, EASE or ItemKNN."
        )

    def user_similarity(self) -> Scorer:
        """Return a scorer of users against users."""
        raise UnsupportedError(
            f"{self.name} has no vectors of users, so none are similar: use a model such as "
            "TransCF."
        )
