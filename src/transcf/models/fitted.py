"""`FittedScorer`: what training hands out and a fitted model keeps; it scores its users by row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import IdMap, Rows
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays
from transcf.models.contributions import Contributions, Remarks, by_leaving_out
from transcf.models.training_data import TrainingData
from transcf.retrieval.scorer import Scorer, Scores

if TYPE_CHECKING:
    from transcf.retrieval.sums import SumForm


class FittedScorer(Scorer, ABC):
    """Arrays and how they score; made once and never changed.

    A kind says what files hold (`arrays`) and has either `linear_form` or `_score_block`. What it
    knows about people and things beyond the training data is in the rest.

    Args:
        known: What the model keeps of its training data.
        name: What tables and errors call the model.
    """

    name: str

    def __init__(self, known: TrainingData, name: str) -> None:
        self.known, self.name = known, name

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the rest when it is first needed.

        It would make copies larger, and has functions in it that cannot be pickled.
        """
        kinds = type(self).__mro__
        lazy = {
            n for kind in kinds for n, v in vars(kind).items() if isinstance(v, cached_property)
        }
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return what files hold, by name."""

    def attributes(self) -> dict[str, Any]:
        """Return what a fitted model shows, by name without the trailing underscore."""
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
        """Return the score as a logarithm of a sum of inner products' exponentials, if it is one.

        For scores that are no inner products, and are to be served by what ranks these.
        """
        return None

    def with_bias(self, offset: Scores) -> FittedScorer | None:
        """Return the same with a number added to each item's bias; None where it has none."""
        return None

    # -- people and things beyond the training data: a kind fills in what it can ---------------

    def fold_in(self, histories: Histories) -> Scorer:
        """Return a scorer with a row for each of some people known by their items alone."""
        raise UnsupportedError(
            f"{self.name} cannot recommend to people it was not fitted on: fit again with them, "
            "or use a model such as TransCF."
        )

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Return the same after some steps of training for each of them."""
        raise UnsupportedError(
            f"{self.name} places newcomers without any training: leave out steps={steps}."
        )

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return what the items of a history, (n,) rows in order, do to the score of an item.

        Kinds with a formula for it override this, and so do those that know that there is none.
        """
        return by_leaving_out(self.fold_in, self.known, history, item)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Say what else there is to say about a score.

        Args:
            user: Row of the user; None for somebody known by a history alone.
            history: Item rows of the user, in order.
            item: Row of the item.
            top: Longest list.
        """
        return Remarks()

    def stand(self, user: int | None, history: Rows) -> Scores | None:
        """Return where somebody stands among the item vectors, (dim,); None without such a place.

        Args:
            user: Row of the user; None for somebody known by a history alone.
            history: Item rows, in order; at least one.
        """
        return None

    def moved(self, user: int | None, history: Rows, items: Rows) -> Scores | None:
        """Return where somebody is moved to for some items, (n, dim); None without translations."""
        return None

    def ways(self, user: int | None, history: Rows, item: int) -> tuple[Scores, Scores] | None:
        """Return where each past item moves somebody, and what that counts in an item's score.

        Returns:
            Points (n, dim) and shares (n,) that add up to 1, for the n items of the history; None
            where there is one translation at most.
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
