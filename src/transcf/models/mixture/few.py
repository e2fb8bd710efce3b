"""The best of few items by the mixture: all are scored, and who comes near a list once more.

A score in float32 is not quite what `score_pairs` says, and what scores many people at once rounds
in another way. Lists take the scores of pairs, so that they depend on nothing but the person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.retrieval.scorer import Scores, TileMaker, block_length
from transcf.retrieval.sources import BlockSource

if TYPE_CHECKING:
    from transcf.models.mixture.people import Placed


class FewItems:
    """A scorer of the same people, which makes its tiles of whole blocks.

    Args:
        people: Everybody.
    """

    def __init__(self, people: Placed) -> None:
        """Keep them."""
        self._people, self.name = people, people.name
        self.rankable: Mask = people.rankable
        self.most_users = block_length(len(self.rankable))

    def linear_form(self) -> None:
        """Return nothing: a logarithm of a sum is no inner product."""

    def tile_maker(self) -> TileMaker:
        """Return itself."""
        return self

    def open(self, users: Rows, items: Rows) -> NearSource:
        """Return what scores these users."""
        return NearSource(self._people, users, items)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some rows: (n, n_items)."""
        return self._people.score_block(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        return self._people.score_pairs(users, items)


class NearSource(BlockSource):
    """All scores of some people in float32, and the true ones of pairs.

    Args:
        people: Everybody.
        users: (n,) rows.
        items: (m,) rows of what will be asked for.
    """

    def __init__(self, people: Placed, users: Rows, items: Rows) -> None:
        """Score."""
        super().__init__(people.score_block(users), items)
        self._people, self._users = people, users
        self.error = people.rounding(users).astype(np.float32)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Score pairs by the direct formula: (n,)."""
        return self._people.score_pairs(self._users[rows], items)
