"""What ranking needs of a model: rows in, scores out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows

Scores: TypeAlias = npt.NDArray[np.float32]

#: Memory that one block of scores may take, in bytes.
BLOCK_BYTES = 64 * 2**20


class Scorer(Protocol):
    """Anything that scores users against items; every fitted model is one.

    A scorer may also have `_linear_form() -> LinearForm | None`; ranking then uses matrix
    products instead of `score_block`.
    """

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) which items may be ranked: those with training interactions."""

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some users: (n, n_items), higher is better."""

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score (user, item) pairs: (n,)."""


@dataclass(frozen=True, eq=False)
class LinearForm:
    """Scores as inner products: `score(u, i) = constants[u] + user_vectors[u] . item_vectors[i]`.

    Attributes:
        user_vectors: (n_users, d) float32.
        item_vectors: (n_items, d) float32.
        user_constants: (n_users,) float32; they do not change the order of a user's items.
    """

    user_vectors: Scores
    item_vectors: Scores
    user_constants: Scores

    @cached_property
    def item_norms(self) -> npt.NDArray[np.float64]:
        """(n_items,) lengths of the item vectors."""
        from transcf.kernels.products import row_norms

        return row_norms(self.item_vectors)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some users: one matrix product, (n, n_items)."""
        scores: Scores = self.user_vectors[users] @ self.item_vectors.T
        scores += self.user_constants[users, None]
        return scores

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs in float64, rounded to float32: (n,), the scores that `top_k` returns."""
        from transcf.kernels.products import pair_scores

        return pair_scores(
            self.user_vectors, self.item_vectors, self.user_constants, users, items
        )


def linear_form_of(scorer: Scorer) -> LinearForm | None:
    """Return the linear form of a scorer, or None if it has none."""
    make = getattr(scorer, "_linear_form", None)
    return None if make is None else cast("LinearForm | None", make())


def name_of(scorer: Scorer) -> str:
    """Return what tables and errors call a scorer."""
    return str(getattr(scorer, "name", type(scorer).__name__))


def block_length(n_items: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many users fit into one block of scores."""
    return max(1, block_bytes // (4 * max(1, n_items)))
