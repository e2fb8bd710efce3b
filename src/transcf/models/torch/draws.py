"""What an epoch draws: named generators, and items that a user does not have."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import Rows

Integers: TypeAlias = npt.NDArray[np.int64]

#: Draws that are searched for at once, so that memory stays small.
_DRAWS_AT_ONCE = 2**20
#: What a generator is for; part of its name.
INIT, ORDER, NEGATIVES, NOISE = 0, 1, 2, 3


def generator(seed: int, epoch: int, purpose: int) -> np.random.Generator:
    """Return the generator of this name: what an epoch draws depends on nothing before it."""
    return np.random.default_rng((seed, epoch, purpose))


class UnseenItems:
    """Uniform draws among the items with training interactions that a user does not have.

    Nothing is drawn in vain: of the trained items in order, the r-th that the user lacks is found
    by one binary search. If the user's k-th item (from 0) is the s_k-th trained one, then s_k - k
    items before it are lacking, a sequence that never falls; the r-th lacking item comes after all
    k with s_k - k <= r, and is therefore the (r + how many those are)-th of all.
    """

    def __init__(self, by_user: Csr) -> None:
        """Prepare the search for all users."""
        trained = np.bincount(by_user.indices, minlength=by_user.n_columns) > 0
        self._items = np.flatnonzero(trained).astype(np.int32)
        self._starts = by_user.indptr
        slots = (np.cumsum(trained) - 1)[by_user.indices]
        rows = by_user.entry_rows.astype(np.int64)
        nth = np.arange(len(slots)) - self._starts[rows]
        # Sorted within each user, and users lie apart: one sorted array for all of them.
        self._apart = len(self._items) + 1
        self._keys: Integers = rows * self._apart + slots - nth
        #: (n_users,) how many items each user lacks.
        self.lacking: Integers = len(self._items) - by_user.counts

    def draw(self, users: Rows, count: int, rng: np.random.Generator) -> Rows:
        """Draw `count` item rows for each of some users who lack at least one: (n, count) int32."""
        drawn = np.empty((len(users), count), np.int32)
        step = max(1, _DRAWS_AT_ONCE // count)
        for start in range(0, len(users), step):
            some = users[start : start + step, None].astype(np.int64)
            nth = (rng.random((len(some), count)) * self.lacking[some]).astype(np.int64)
            wanted = some * self._apart + nth
            before = np.searchsorted(self._keys, wanted.ravel(), side="right").reshape(nth.shape)
            drawn[start : start + step] = self._items[nth + before - self._starts[some]]
        return drawn


class Sampled(NamedTuple):
    """What an epoch shows.

    Attributes:
        users: (n,) int32.
        items: (n, 1 + negatives) int32, the user's own first.
        weights: (n,) float32, how much the user's own count; empty where all count 1.
    """

    users: Rows
    items: Rows
    weights: npt.NDArray[np.float32]


class SampledInteractions:
    """Every interaction once in an epoch, in random order, with items that its user lacks.

    Args:
        by_user: The interactions.
        weights: How much each counts, (nnz,) float32; empty where all count 1.
    """

    def __init__(self, by_user: Csr, weights: npt.NDArray[np.float32]) -> None:
        """Prepare the draws."""
        self._unseen = UnseenItems(by_user)
        users = by_user.entry_rows
        # Who has everything gives nothing to tell apart.
        useful = self._unseen.lacking[users] > 0
        self._users, self._items = users[useful], by_user.indices[useful]
        self._weights = weights[useful] if len(weights) else weights

    def draw(self, seed: int, epoch: int, negatives: int) -> Sampled:
        """Draw what an epoch shows."""
        order = generator(seed, epoch, ORDER).permutation(len(self._users))
        drawn = self._unseen.draw(self._users, negatives, generator(seed, epoch, NEGATIVES))
        items = np.hstack([self._items[:, None], drawn])
        weights = self._weights[order] if len(self._weights) else self._weights
        return Sampled(self._users[order], items[order], weights)
