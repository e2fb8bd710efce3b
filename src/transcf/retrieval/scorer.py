"""`Scorer`: scores of users for items, by row, and the best items of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Mask

if TYPE_CHECKING:
    from transcf.retrieval.forms import LinearForm

Scores: TypeAlias = npt.NDArray[np.float32]
Norms: TypeAlias = npt.NDArray[np.float64]

#: Memory that one block of scores may take, in bytes.
BLOCK_BYTES = 64 * 2**20


class Source(Protocol):
    """Scores of a block of users, computed for some items at a time.

    Tiles may be off by `error`; `pairs` returns the true scores.
    """

    @property
    def error(self) -> Scores:
        """(n,) largest difference between a score in a tile and the true one."""

    @property
    def size(self) -> Norms:
        """(n,) upper bound on the absolute values of a user's scores."""

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the scores of all users for some item rows: (n, n_items)."""

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return the true scores of pairs: (n,); rows count the users of the block."""


class Scorer:
    """Scores users for items, both given by row; every fitted model is one.

    A subclass has `name`, `rankable`, and either `linear_form` or `_score_block`.
    """

    if TYPE_CHECKING:

        @property
        def name(self) -> str:
            """Name in tables and errors."""

        @property
        def rankable(self) -> Mask:
            """(n_items,) items that may be ranked: those with training interactions."""

    def linear_form(self) -> LinearForm | None:
        """Return the scores as inner products, which rank fastest; None if they are not."""
        return None

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score items for users; higher is better.

        Args:
            users: (n,) user rows.
            items: (n,) item rows, one for each user; None for all items.

        Returns:
            (n,) scores of the pairs, or (n, n_items) without `items`.
        """
        return self._score_block(users) if items is None else self._score_pairs(users, items)

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some users: (n, n_items)."""
        form = self.linear_form()
        assert form is not None, f"{type(self).__name__} has neither linear_form nor _score_block"
        return form.scores(users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs: (n,). Scorers with a direct formula override this."""
        form = self.linear_form()
        if form is not None:
            return form.scores(users, items)
        scores = np.empty(len(users), dtype=np.float32)
        distinct, place = np.unique(users, return_inverse=True)
        order = np.argsort(place, kind="stable")
        step = block_length(len(self.rankable))
        for first in range(0, len(distinct), step):
            start, stop = np.searchsorted(place[order], (first, first + step))
            pairs = order[start:stop]
            block = self.scores(distinct[first : first + step].astype(np.int32))
            scores[pairs] = block[place[pairs] - first, items[pairs]]
        return scores

    def top_k(
        self, users: Rows, k: int, *, seen: Csr | None = None, allowed: Mask | None = None
    ) -> tuple[Rows, Scores]:
        """Find the best k items of each user; see `retrieval.top_k`."""
        from transcf.retrieval.topk import rank_tiles

        return rank_tiles(self, users, k, seen, self.rankable if allowed is None else allowed)

    @property
    def block_users(self) -> int | None:
        """Most users of a block whose scores are computed in tiles; None: all items at once."""
        return None

    def open_block(self, users: Rows, items: Rows) -> Source:
        """Return the scores of some users for some or all of these items, to be read in tiles."""
        from transcf.retrieval.topk import BlockSource

        return BlockSource(np.asarray(self.scores(users), np.float32), items)


@runtime_checkable
class KnowsIds(Protocol):
    """A scorer with the ids of its rows and the interactions it was fitted on."""

    @property
    def users_(self) -> IdMap:
        """User ids, one for each user row."""

    @property
    def items_(self) -> IdMap:
        """Item ids, one for each item row."""

    @property
    def seen_(self) -> Csr:
        """Items of each user row in training."""


@runtime_checkable
class FollowsHistories(Protocol):
    """A scorer whose users may have other histories than in training."""

    def with_histories(self, histories: Histories) -> Scorer:
        """Return a scorer of the same users and items with these histories, one per user row.

        What was learned in training stays as it is.
        """


def block_length(n_items: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return how many users fit into one block of scores."""
    return max(1, block_bytes // (4 * max(1, n_items)))
