"""What ranking needs of a model: rows in, scores out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Mask

Scores: TypeAlias = npt.NDArray[np.float32]
Norms: TypeAlias = npt.NDArray[np.float64]

#: Memory that one block of scores may take, in bytes.
BLOCK_BYTES = 64 * 2**20


class Scorer(Protocol):
    """Anything that scores users against items; every fitted model is one."""

    @property
    def name(self) -> str:
        """What tables and errors call it."""

    @property
    def rankable(self) -> Mask:
        """(n_items,) which items may be ranked: those with training interactions."""

    def linear_form(self) -> LinearForm | None:
        """Return the scores as inner products, which rank fastest; None if they are not."""

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some users: (n, n_items), higher is better."""

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score (user, item) pairs: (n,)."""


@runtime_checkable
class KnowsIds(Protocol):
    """A scorer that knows whom and what its rows stand for, and what it was fitted on."""

    @property
    def users_(self) -> IdMap:
        """User ids, one for each user row."""

    @property
    def items_(self) -> IdMap:
        """Item ids, one for each item row."""

    @property
    def seen_(self) -> Csr:
        """Items of each user row that it has learned from."""


@runtime_checkable
class ScoresMany(Protocol):
    """A scorer that is faster for many users when it knows that they are coming."""

    def for_many(self, users: Rows) -> Scorer:
        """Return a scorer of the same rows for these users, which may take memory of its own."""


@runtime_checkable
class FindsBest(Protocol):
    """A scorer that finds the best of a few users without scoring everything."""

    def best(
        self, users: Rows, k: int, seen: Csr | None, allowed: Mask
    ) -> tuple[Rows, Scores] | None:
        """Return what `top_k` does, exactly; None where it cannot."""


class Source(Protocol):
    """Scores of some users, made for a stretch of items at a time.

    What fills tiles may be quick and only nearly right, as long as it says how nearly: the scores
    of pairs are the true ones.
    """

    @property
    def error(self) -> Scores:
        """(n,) how far a user's scores in a tile may be from the true ones."""

    @property
    def size(self) -> Norms:
        """(n,) what no score of a user is above, signs aside."""

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the scores of all users for some item rows: (n, n_items)."""

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return the true scores of pairs of rows: (n,); users are counted as they were given."""


class TileMaker(Protocol):
    """What scores many users stretch by stretch."""

    @property
    def most_users(self) -> int:
        """How many users may come at once; the more there are, the less each costs."""

    def open(self, users: Rows, items: Rows) -> Source:
        """Return what scores these users for all or some of these items, (n,) and (m,) rows."""


@runtime_checkable
class GivesTiles(Protocol):
    """A scorer whose scores, though no inner products, are made in tiles."""

    def tile_maker(self) -> TileMaker | None:
        """Return what makes them, if it has such a thing."""


def tile_maker(scorer: Scorer) -> TileMaker | None:
    """Return what makes tiles of a scorer; None where all items are scored at once."""
    return scorer.tile_maker() if isinstance(scorer, GivesTiles) else None


def for_many(scorer: Scorer, users: Rows) -> Scorer:
    """Return what scores some users fastest: the scorer itself, or what it makes for them."""
    scorer = getattr(scorer, "learned_", scorer)  # of a fitted model
    return scorer.for_many(users) if isinstance(scorer, ScoresMany) else scorer


class LinearForm(ABC):
    """Scores as inner products: `score(u, i) = constants[u] + user_vectors[u] . item_vectors[i]`.

    The item side is always there; where the user side comes from is up to the kind of form.

    Args:
        item_vectors: (n_items, d) float32.
        item_norms: (n_items,) their lengths, where they are known already.
    """

    def __init__(self, item_vectors: Scores, item_norms: Norms | None = None) -> None:
        """Keep the item side."""
        self.item_vectors = item_vectors
        self._item_norms = item_norms

    @property
    @abstractmethod
    def user_vectors(self) -> Scores:
        """(n_users, d) float32."""

    @property
    @abstractmethod
    def user_constants(self) -> Scores:
        """(n_users,) float32; they do not change the order of a user's items."""

    @abstractmethod
    def of_users(self, users: Rows) -> tuple[Scores, Scores]:
        """Vectors (n, d) and constants (n,) of some users."""

    @abstractmethod
    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs in float64, rounded to float32: (n,), the scores that `top_k` returns."""

    @property
    def item_norms(self) -> Norms:
        """(n_items,) lengths of the item vectors, computed at first use and kept."""
        if self._item_norms is None:
            from transcf.kernels.products import row_norms

            self._item_norms = row_norms(self.item_vectors)
        return self._item_norms

    def for_users(self, user_vectors: Scores, user_constants: Scores) -> LinearForm:
        """Return the same items for other users, (n, d) and (n,)."""
        return StoredForm(user_vectors, self.item_vectors, user_constants, self.item_norms)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some users: one matrix product, (n, n_items)."""
        vectors, constants = self.of_users(users)
        scores: Scores = vectors @ self.item_vectors.T
        scores += constants[:, None]
        return scores


class StoredForm(LinearForm):
    """A linear form whose two sides are arrays.

    Args:
        user_vectors: (n_users, d) float32.
        item_vectors: (n_items, d) float32.
        user_constants: (n_users,) float32.
        item_norms: As for `LinearForm`.
    """

    def __init__(
        self,
        user_vectors: Scores,
        item_vectors: Scores,
        user_constants: Scores,
        item_norms: Norms | None = None,
    ) -> None:
        """Keep both sides."""
        super().__init__(item_vectors, item_norms)
        self._user_vectors, self._user_constants = user_vectors, user_constants

    @property
    def user_vectors(self) -> Scores:
        """(n_users, d) float32."""
        return self._user_vectors

    @property
    def user_constants(self) -> Scores:
        """(n_users,) float32."""
        return self._user_constants

    def of_users(self, users: Rows) -> tuple[Scores, Scores]:
        """Vectors (n, d) and constants (n,) of some users."""
        return self._user_vectors[users], self._user_constants[users]

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs in float64, rounded to float32: (n,), the scores that `top_k` returns."""
        from transcf.kernels.products import pair_scores

        return pair_scores(
            self._user_vectors, self.item_vectors, self._user_constants, users, items
        )


class LazyForm(LinearForm):
    """A linear form whose user side is made when it is needed, for the users that need it.

    A large model answers its first request at once, and ranking takes no memory for users whose
    turn it is not.

    Args:
        item_vectors: (n_items, d) float32.
        make_users: From user rows, or a slice of them, to vectors (n, d) and constants (n,).
    """

    def __init__(
        self, item_vectors: Scores, make_users: Callable[[Rows | slice], tuple[Scores, Scores]]
    ) -> None:
        """Keep the item side, and the way to the user side."""
        super().__init__(item_vectors)
        self._make_users = make_users

    @cached_property
    def _everybody(self) -> tuple[Scores, Scores]:
        return self._make_users(slice(None))

    @property
    def user_vectors(self) -> Scores:
        """(n_users, d) float32, made at first use and kept."""
        return self._everybody[0]

    @property
    def user_constants(self) -> Scores:
        """(n_users,) float32, made at first use and kept."""
        return self._everybody[1]

    def of_users(self, users: Rows) -> tuple[Scores, Scores]:
        """Vectors (n, d) and constants (n,) of some users."""
        return self._make_users(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs in float64, rounded to float32: (n,), the scores that `top_k` returns."""
        distinct, places = np.unique(users, return_inverse=True)
        vectors, constants = self.of_users(distinct)
        few = StoredForm(vectors, self.item_vectors, constants)
        return few.score_pairs(places.astype(np.int32), items)


def block_length(n_items: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many users fit into one block of scores."""
    return max(1, block_bytes // (4 * max(1, n_items)))
