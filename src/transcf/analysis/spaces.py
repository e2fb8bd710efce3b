"""`Space`: points of users and items, and what moves the ones toward the others, in any model.

Analyses ask for the translation of some pairs under some model, whatever its kind. For the
mixture, which moves a user once for each item k of the history, the translation of a pair is the
mean of all r_uk by their shares in the pair's score: where the score says that the user is, taken
as a whole. (The nearest r_uk alone would jump from one item of the history to the next.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows
from transcf.errors import NotFittedError, UnsupportedError
from transcf.kernels import Array
from transcf.models.factors import Factors
from transcf.models.item_offsets import WithItemOffsets
from transcf.models.mixture.learned import Mixture
from transcf.models.recommender import Recommender
from transcf.models.training_data import TrainingData
from transcf.models.transcf.fitted import Translated

#: Translations of pairs of rows, (n, dim).
Translate: TypeAlias = Callable[[Rows, Rows], Array]

#: Pairs whose translations are worked out at once.
_PAIRS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Space:
    """Where users and items are.

    Attributes:
        name: What tables call the model.
        known: What the model keeps of its training data.
        users: a, (n_users, dim) float32.
        items: b, (n_items, dim) float32.
        translate: r of pairs of rows; None where users stay where they are.
    """

    name: str
    known: TrainingData
    users: Array
    items: Array
    translate: Translate | None = None

    @property
    def has_translations(self) -> bool:
        """Whether anything is moved."""
        return self.translate is not None

    def translations(self, users: Rows, items: Rows) -> Array:
        """Return r of pairs of rows, (n, dim) float32.

        Raises:
            UnsupportedError: The model moves nobody.
        """
        if self.translate is None:
            raise UnsupportedError(
                f"{self.name} moves nobody: translations are what TransCF has, in all its forms "
                "but still and emb."
            )
        found = np.empty((len(users), self.users.shape[1]), np.float32)
        for start in range(0, len(users), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            found[some] = self.translate(users[some], items[some])
        return found

    def differences(self, users: Rows, items: Rows) -> Array:
        """Return a - b of pairs of rows, (n, dim) float32."""
        apart: Array = self.users[users] - self.items[items]
        return apart

    def vectors(self, users: Rows, items: Rows) -> Array:
        """Return what the model has for a pair: its translation, or a - b where it has none."""
        has_some = self.has_translations
        return self.translations(users, items) if has_some else self.differences(users, items)

    def distances(self, apart: Array, moves: Array) -> tuple[Array, Array]:
        """Return squared distances before and after the translation, (n,) float64 each.

        Args:
            apart: a - b of pairs, (n, dim).
            moves: r of the same pairs, (n, dim).
        """
        apart, moves = apart.astype(np.float64), moves.astype(np.float64)
        moved = apart + moves
        return np.square(apart).sum(axis=1), np.square(moved).sum(axis=1)

    def nearness(self, users: Rows, items: Rows) -> Array:
        """Return squared distances of pairs after the translation, if any: (n,) float64."""
        found = np.empty(len(users))
        for start in range(0, len(users), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            apart = self.differences(users[some], items[some])
            moves = np.zeros_like(apart)
            if self.translate is not None:
                moves = self.translate(users[some], items[some])
            found[some] = self.distances(apart, moves)[1]
        return found

    def usable(self, users: Rows, items: Rows) -> npt.NDArray[np.bool_]:
        """Tell which pairs of rows have a user and an item that the model has learned from."""
        known: npt.NDArray[np.bool_] = (
            self.known.active[users] & (self.known.item_counts > 0)[items]
        )
        return known


def space_of(model: Recommender[Any]) -> Space:
    """Return where a fitted model has its users and items, and how it moves them.

    Args:
        model: TransCF, TransCFMixture, or a model with a vector for every user and every item.

    Raises:
        UnsupportedError: The model has no such vectors.

    Example:
        >>> from transcf import CML, TransCF, synthesize
        >>> log = synthesize(users=100, items=50, interactions=1000)
        >>> space_of(TransCF(dim=8, epochs=1).fit(log)).has_translations
        True
        >>> space_of(CML(dim=8, epochs=1).fit(log)).has_translations
        False
    """
    if not model.is_fitted:
        raise NotFittedError(f"This {type(model).__name__} is not fitted yet: call fit first.")
    learned = model.learned_
    inner = learned.inner if isinstance(learned, WithItemOffsets) else learned
    known = inner.known
    match inner:
        case Mixture():
            moves = inner.translations if inner.settings.tau else None
            return Space(model.name, known, inner.users, inner.items, moves)
        case Translated():
            own, variant = inner.parameters, inner.form.name
            # "emb" scores as the published variant; its translation is a - b.
            moves = None if variant in ("none", "emb") else inner.translations
            return Space(model.name, known, own.users, own.items, moves)
        case Factors():
            return Space(model.name, known, inner.users, inner.items)
    raise UnsupportedError(
        f"{model.name} has no vector for every user and every item, so that there is nothing to "
        "analyse: take TransCF, TransCFMixture, CML or another model of factors."
    )
