"""New items that nobody has touched yet, placed by their categories."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.data.report import counted
from transcf.errors import DataError
from transcf.kernels import Array
from transcf.learning import Known
from transcf.learning.growth import Growth
from transcf.models.transcf.folding import by_count
from transcf.models.transcf.learned import Translated
from transcf.models.transcf.mixing import Mates
from transcf.models.transcf.parameters import Parameters
from transcf.models.transcf.side import Beside, Side


@dataclass(frozen=True)
class Placing:
    """Where new items stand among those that a model has learned.

    Attributes:
        growth: Old ids and interactions together with the new items.
        rows: The new items, (n_new,).
        mates: Means over the items of their categories.
        trained: Which items have interactions, (n_items,) bool.
    """

    growth: Growth
    rows: Rows
    mates: Mates
    trained: Array

    @classmethod
    def of(cls, known: Known, side: Side, categories: pl.DataFrame) -> Placing:
        """Find the new items of a table `item_id, category`, and their mates.

        Args:
            known: What the model knows.
            side: Categories that it has kept, if any.
            categories: Those of the new items, and of items that the model knows.

        Raises:
            DataError: There are none, or one has no category that items with interactions have.
        """
        growth = Growth.with_items(known, IdMap(categories["item_id"].unique().sort()))
        ids = (growth.known.users, growth.known.items)
        nothing = Csr(np.zeros(len(known.items) + 1, np.int64), np.empty(0, np.int32), 0)
        kept = replace(side, friends=None, categories=side.categories or nothing)
        old = (growth.old_users, growth.old_items)
        shelves = kept.grown(ids, old, Beside(categories=categories)).categories
        assert shelves is not None, "there were some before"
        listed = np.unique(growth.known.items.rows(categories["item_id"]))
        rows = listed[~growth.known.rankable[listed]]
        if not len(rows):
            raise DataError(
                "There is nothing to add: the model can recommend all items of the table already."
            )
        trained = growth.known.item_counts > 0
        mates = Mates.of(shelves, 1.0, trained)
        lost = rows[~mates.has_some[rows]]
        if len(lost):
            raise DataError(
                f"item {growth.known.items.ids(lost[:1]).item()!r} ({counted(len(lost), 'item')} "
                "in all) has no category that items with interactions have: leave it out, or give "
                "the categories of items that the model knows, too."
            )
        placed = np.union1d(growth.known.placed, rows).astype(np.int32)
        growth = replace(growth, known=replace(growth.known, placed=placed))
        return cls(growth, rows, mates, trained)

    def vectors(self, items: Array) -> Array:
        """Give the new ones the mean direction of their mates, and the length that rare items have.

        Args:
            items: Of all items, (n_items, dim); filled in.
        """
        mean = self.mates.means_of(self.rows, items.astype(np.float64))
        lengths = self._of_rare(np.linalg.norm(items[self.trained].astype(np.float64), axis=1))
        present = np.maximum(np.linalg.norm(mean, axis=1), np.finfo(np.float32).tiny)
        items[self.rows] = mean * (lengths / present)[:, None]
        return items

    def biases(self, bias: Array) -> Array:
        """Give the new ones the bias that rare items have: (n_items,), filled in."""
        bias[self.rows] = self._of_rare(bias[self.trained].astype(np.float64))
        return bias

    def means(self, values: Array) -> Array:
        """Give the new ones the mean of their mates: (n_items, dim), filled in."""
        values[self.rows] = self.mates.means_of(self.rows, values.astype(np.float64))
        return values

    def _of_rare(self, values: Array) -> Array:
        """What items with a single interaction have, by the line through those that are trained."""
        counts = self.growth.known.item_counts[self.trained]
        return by_count(values, counts, np.ones(len(self.rows)))


def place_items(learned: Translated, categories: pl.DataFrame) -> Translated:
    """Add new items by a table `item_id, category`; see `Placing.of`.

    Their neighbourhoods are the means of those of their mates; all else stays as it was.
    """
    placing = Placing.of(learned.known, learned.side, categories)
    growth, own = placing.growth, learned.parameters
    bias = growth.of_items(own.item_bias)
    parameters = Parameters(
        growth.of_users(own.users),
        placing.vectors(growth.of_items(own.items)),
        placing.biases(bias) if learned.settings.item_bias else bias,
    )
    means = growth.of_users(learned.q), placing.means(growth.of_items(learned.n))
    ids, old = (growth.known.users, growth.known.items), (growth.old_users, growth.old_items)
    side = learned.side.grown(ids, old, Beside(categories=categories))
    return Translated(growth.known, learned.settings, parameters, means, side)
