"""`WithItemOffsets`: what was learned, with a number added to the score of each item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.models.contributions import Contributions, Remarks
from transcf.models.fitted import FittedScorer
from transcf.models.training_data import TrainingData
from transcf.retrieval.forms import LinearForm
from transcf.retrieval.scorer import Scorer, Scores, Source
from transcf.retrieval.sums import SumForm
from transcf.retrieval.views import SumView, shifted

#: What files call the offsets.
_OFFSETS = "item_offsets"


class WithItemOffsets(FittedScorer):
    """`score(u, i) = score of the inner one + offset_i`.

    Args:
        inner: What scores without it.
        offset: (n_items,) float32.
    """

    def __init__(self, inner: FittedScorer, offset: Scores) -> None:
        """Keep both."""
        super().__init__(inner.known, inner.name)
        self.inner, self.offset = inner, offset

    @cached_property
    def _view(self) -> SumView:
        return shifted(self.inner, self.offset)

    def arrays(self) -> Arrays:
        """Return those of the inner one, and the offsets."""
        return self.inner.arrays() | {_OFFSETS: self.offset}

    def attributes(self) -> dict[str, Any]:
        """Return the same as a model shows them."""
        return self.inner.attributes() | {_OFFSETS: self.offset}

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if the inner one is."""
        return self._view.linear_form()

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum, if the inner one is."""
        form = self.inner.sum_form()
        return None if form is None else form.shifted(self.offset)

    def _score_block(self, users: Rows) -> Scores:
        return self._view.scores(users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        return self._view.scores(users, items)

    @property
    def block_users(self) -> int | None:
        """As many as the inner one can take."""
        return self._view.block_users

    def open_block(self, users: Rows, items: Rows) -> Source:
        """Return the scores of some users, to be read in tiles."""
        return self._view.open_block(users, items)

    def fold_in(self, histories: Histories) -> Scorer:
        """Score people by their items, as users are."""
        return shifted(self.inner.fold_in(histories), self.offset)

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Do the same after some steps of training."""
        return shifted(self.inner.fold_in_with_sgd(histories, steps), self.offset)

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return what the inner one says; the offset is part of the rest."""
        found = self.inner.contributions(history, item)
        if found.rest is None:
            return found
        return replace(found, rest=found.rest + float(self.offset[item]))

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Say what the inner one says, and what is added."""
        said, added = self.inner.remarks(user, history, item, top), float(self.offset[item])
        words = f"Recent popularity changes the score by {added:+.3g}, whoever is asked."
        return Remarks((*said.words, words), said.facts | {"trend": added})

    def stand(self, user: int | None, history: Rows) -> Scores | None:
        """Return that of the inner one."""
        return self.inner.stand(user, history)

    def moved(self, user: int | None, history: Rows, items: Rows) -> Scores | None:
        """Return that of the inner one."""
        return self.inner.moved(user, history, items)

    def ways(self, user: int | None, history: Rows, item: int) -> tuple[Scores, Scores] | None:
        """Return those of the inner one."""
        return self.inner.ways(user, history, item)

    def item_similarity(self) -> Scorer:
        """Return that of the inner one."""
        return self.inner.item_similarity()

    def user_similarity(self) -> Scorer:
        """Return that of the inner one."""
        return self.inner.user_similarity()


def restored(
    arrays: Arrays, known: TrainingData, restore: Callable[[Arrays], FittedScorer]
) -> FittedScorer:
    """Return what a file holds, with its offsets where it has some.

    Args:
        arrays: Those of the file.
        known: What the model keeps of its training data.
        restore: Makes what was learned from the arrays of the model itself.

    Raises:
        ValueError: The offsets are not one number for each item.
    """
    if _OFFSETS not in arrays:
        return restore(arrays)
    offset = checked(arrays, _OFFSETS, np.float32, (len(known.items),))
    own = {name: array for name, array in arrays.items() if name != _OFFSETS}
    return WithItemOffsets(restore(own), offset)
