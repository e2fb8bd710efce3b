"""Scoring many people with the mixture: what past items give other items is worked out once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transcf.data.ids import Rows
from transcf.kernels import Array
from transcf.kernels.mixture_table import Homes, make_table, sum_table
from transcf.kernels.rows import padded
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import BlockView

if TYPE_CHECKING:
    from transcf.models.transcf.mixture.learned import Mixture

#: Memory that a table may take while many people are scored.
TABLE_BYTES = 640 * 2**20
#: Events for each row of a table below which it does not pay.
_EVENTS_OF_A_ROW = 3
#: Exponents below minus this would vanish in float32.
_LARGEST_EXPONENT = 80


def scorer_of_many(learned: Mixture, users: Rows) -> Scorer:
    """Return what scores these users fastest, with the scores of `learned` but for rounding.

    Args:
        learned: What scores them one by one.
        users: Everybody who will be asked for, (n,).
    """
    histories, tau = learned.known.histories.take(users), learned.settings.tau
    past = np.unique(histories.items)
    items, _, n_items = learned.item_side
    too_few = len(histories.items) < _EVENTS_OF_A_ROW * max(1, len(past))
    if too_few or 4 * len(past) * len(items) > TABLE_BYTES:
        return learned
    farthest = sum(np.sqrt(squares(points).max()) for points in (learned.history, learned.items))
    if tau * farthest**2 > _LARGEST_EXPONENT:
        return learned
    width = items.shape[1]
    table = make_table(padded(learned.history[past]).reshape(-1, width), items, tau)
    announced = np.zeros(len(learned.known.users), np.bool_)
    announced[users] = True
    row_of = np.zeros(n_items, np.int32)
    row_of[past] = np.arange(len(past), dtype=np.int32)
    beta, heights = learned.settings.beta, np.zeros(len(items), np.float32)
    heights[:n_items] = learned.bias - beta * squares(learned.items)

    def score(rows: Rows) -> Scores:
        if not announced[rows].all():
            return learned.score_block(rows)
        taken, a = learned.known.histories.take(rows), learned.users[rows]
        homes = Homes(
            points=padded(np.float32(2 * beta) * a).reshape(-1, width),
            offsets=(-beta * squares(a)).astype(np.float32),
            items=items,
            heights=heights,
        )
        weights = np.exp(learned.log_weights(taken)).astype(np.float32)
        return sum_table(taken.indptr, row_of[taken.items], weights, table, homes, n_items)

    return BlockView(learned.name, learned.rankable, score)


def squares(vectors: Array) -> Array:
    """Squared lengths of vectors, (n,) float64."""
    squares: Array = np.square(vectors, dtype=np.float64).sum(axis=1)
    return squares
