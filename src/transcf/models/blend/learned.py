"""`Blended`: what several models have learned, with how much each has to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays, stored
from transcf.models.contributions import Remarks
from transcf.models.fitted import FittedScorer
from transcf.models.training_data import TrainingData
from transcf.retrieval.forms import LinearForm
from transcf.retrieval.scorer import Scorer, Scores, Source
from transcf.retrieval.views import SumView

Floats: TypeAlias = npt.NDArray[np.float64]
Epochs: TypeAlias = npt.NDArray[np.int64]
P = TypeVar("P")

#: Scores that differ by less are all equal, and nothing to divide by.
_LEAST_SPREAD = float(np.finfo(np.float32).tiny)


class Blended(FittedScorer):
    """`score(u, i) = sum over parts of weight * score of the part / spread of the part`.

    Parts without any weight are kept, and never asked.

    Args:
        known: What the model keeps of its training data, as all of its parts do.
        name: What tables call the model.
        parts: What the parts have learned.
        weights: (n_parts,) float64, none below 0, with a sum of 1.
        spreads: (n_parts,) float64, how much scores of a part differ for a user.
        best_epochs: (n_parts,) int64, the epoch that was kept of each part; 0 if it has none.
    """

    def __init__(
        self,
        known: TrainingData,
        name: str,
        parts: Sequence[FittedScorer],
        weights: Floats,
        spreads: Floats,
        best_epochs: Epochs,
    ) -> None:
        """Keep them."""
        super().__init__(known, name)
        self.parts, self.weights, self.spreads = tuple(parts), weights, spreads
        self.best_epochs = best_epochs

    @classmethod
    def from_arrays(
        cls,
        arrays: Arrays,
        known: TrainingData,
        name: str,
        restore: Sequence[Callable[[Arrays, TrainingData], FittedScorer]],
    ) -> Blended:
        """Put together what a file holds; `restore` makes each part of its own arrays.

        Raises:
            ValueError: An array is missing or not what is needed.
        """
        n_parts = (len(restore),)
        weights = stored(arrays, "weights", np.float64, n_parts)
        spreads = stored(arrays, "spreads", np.float64, n_parts)
        epochs = stored(arrays, "best_epochs", np.int64, n_parts)
        if not (weights >= 0).all() or not np.isclose(weights.sum(), 1):
            raise ValueError(f"weights should be shares of 1 and are {weights.tolist()}")
        parts = [make(_of_part(arrays, n), known) for n, make in enumerate(restore, start=1)]
        return cls(known, name, parts, weights, spreads, epochs)

    def arrays(self) -> Arrays:
        """Return weights and their like, and the arrays of the parts: `part1.NAME` and so on."""
        own = {"weights": self.weights, "spreads": self.spreads, "best_epochs": self.best_epochs}
        return own | {
            _prefix(number) + name: array
            for number, part in enumerate(self.parts, start=1)
            for name, array in part.arrays().items()
        }

    def attributes(self) -> dict[str, Any]:
        """Return the parts as they are, and how much each has to say."""
        return {"parts": self.parts, "weights": self.weights, "spreads": self.spreads}

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def _voices(self) -> list[tuple[FittedScorer, float]]:
        return voices(self.parts, self.weights, self.spreads)

    @cached_property
    def _view(self) -> SumView:
        return self._sum(lambda part: part)

    def _sum(self, scorer_of: Callable[[FittedScorer], Scorer]) -> SumView:
        """Add up what is made of each part."""
        scorers = tuple(scorer_of(part) for part, _ in self._voices)
        return SumView(self.name, scorers, tuple(factor for _, factor in self._voices))

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if that of every part is one."""
        return self._view.linear_form()

    def _score_block(self, users: Rows) -> Scores:
        return self._view.scores(users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        return self._view.scores(users, items)

    @property
    def block_users(self) -> int | None:
        """As many as all parts can take."""
        return self._view.block_users

    def open_block(self, users: Rows, items: Rows) -> Source:
        """Return the scores of some users, to be read in tiles."""
        return self._view.open_block(users, items)

    # -- people and things beyond the training data --------------------------------------------

    def fold_in(self, histories: Histories) -> Scorer:
        """Score people by their items, as every part does."""
        return self._sum(lambda part: part.fold_in(histories))

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Do the same after some steps of training, in the parts that can."""
        trained: list[Scorer] = []

        def place(part: FittedScorer) -> Scorer:
            try:
                trained.append(part.fold_in_with_sgd(histories, steps))
            except UnsupportedError:
                return part.fold_in(histories)
            return trained[-1]

        view = self._sum(place)
        return view if trained else super().fold_in_with_sgd(histories, steps)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Say what each part adds to the score."""
        row, rows = (0 if user is None else user), np.array([item], np.int32)
        alone = Histories.of([history], len(self.known.items))
        added: dict[str, float] = {}
        for part, factor in self._voices:
            scorer = part.fold_in(alone) if user is None else part
            score = float(scorer.scores(np.array([row], np.int32), rows)[0])
            taken = part.name in added  # by another model of its kind
            added[f"{part.name} {len(added) + 1}" if taken else part.name] = factor * score
        listed = ", ".join(f"{name} {value:+.3g}" for name, value in added.items())
        return Remarks((f"What each part adds to the score: {listed}.",), {"parts": added})

    def item_similarity(self) -> Scorer:
        """Return that of the part with the largest weight, of those that have one."""
        return self._of_first(lambda part: part.item_similarity(), super().item_similarity)

    def user_similarity(self) -> Scorer:
        """Return that of the part with the largest weight, of those that have one."""
        return self._of_first(lambda part: part.user_similarity(), super().user_similarity)

    def _of_first(
        self, similarity_of: Callable[[FittedScorer], Scorer], otherwise: Callable[[], Scorer]
    ) -> Scorer:
        for place in np.argsort(-self.weights, kind="stable")[: len(self._voices)]:
            try:
                return similarity_of(self.parts[place])
            except UnsupportedError:
                continue
        return otherwise()


def voices(parts: Sequence[P], weights: Floats, spreads: Floats) -> list[tuple[P, float]]:
    """Return the parts with any weight, each with what its scores are multiplied by.

    Example:
        >>> voices(["ease", "bpr"], np.array([1.0, 0.0]), np.array([0.5, 2.0]))
        [('ease', 2.0)]
    """
    factors = weights / np.where(spreads > _LEAST_SPREAD, spreads, 1.0)
    listed = zip(parts, weights.tolist(), factors.tolist(), strict=True)
    return [(part, factor) for part, weight, factor in listed if weight > 0]


def _prefix(number: int) -> str:
    """Return what the names of a part's arrays begin with in files."""
    return f"part{number}."


def _of_part(arrays: Arrays, number: int) -> Arrays:
    start = _prefix(number)
    return {key.removeprefix(start): a for key, a in arrays.items() if key.startswith(start)}
