"""Pairs of users and items to analyse: those of a log, and as many that are in none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from transcf.analysis.spaces import Space
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.kernels import Array

#: Draws for each pair before it is given up: somebody may have next to everything.
_TRIES = 50


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs in the rows of a model.

    Attributes:
        users: (n,) user rows.
        items: (n,) item rows.
        ratings: (n,) float32, or None where there are none.
        labels: (n,) the category of each pair's item, a number of `names`, -1 where it has none;
            None where there are no categories.
        names: Names of the categories.
        in_training: (n,) bool, whether the model has learned from the pair.
        left_out: How many pairs of the log the model cannot place.
    """

    users: Rows
    items: Rows
    ratings: npt.NDArray[np.float32] | None
    labels: npt.NDArray[np.int64] | None
    names: tuple[str, ...]
    in_training: npt.NDArray[np.bool_]
    left_out: int = 0

    @classmethod
    def of(cls, space: Space, log: Interactions) -> Self:
        """Return the events of a log whose user and item a model has learned from.

        Raises:
            DataError: There are none.
        """
        known = space.known
        users = known.users.rows(log.users.series)[log.user_rows]
        items = known.items.rows(log.items.series)[log.item_rows]
        usable = (users != UNKNOWN) & (items != UNKNOWN)
        usable[usable] = space.usable(users[usable], items[usable])
        if not usable.any():
            raise DataError(
                f"{space.name} has learned from none of the users and items of this data: give the "
                "data that it was fitted on."
            )
        labels = None if log.categories is None else item_labels(log)[log.item_rows][usable]
        users, items = users[usable], items[usable]
        return cls(
            users,
            items,
            None if log.ratings is None else log.ratings[usable],
            labels,
            log.category_names,
            _are_in(known.seen.indptr, known.seen.indices, users, items),
            int(np.count_nonzero(~usable)),
        )

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.users)

    def take(self, some: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Pairs:
        """Return some of them, by place or by a mask."""
        return Pairs(
            self.users[some],
            self.items[some],
            None if self.ratings is None else self.ratings[some],
            None if self.labels is None else self.labels[some],
            self.names,
            self.in_training[some],
            self.left_out,
        )

    def at_most(self, number: int, generator: np.random.Generator) -> Pairs:
        """Return so many of them drawn at random, in order; all if there are no more."""
        if len(self) <= number:
            return self
        return self.take(np.sort(generator.choice(len(self), number, replace=False)))

    def unobserved(self, space: Space, generator: np.random.Generator) -> tuple[Rows, Rows]:
        """Draw for each pair an item that its user has neither here nor in training.

        Every item of the model is as likely as any other. Pairs of users who have next to
        everything may go without.

        Returns:
            Users and items, (m,) rows each, m being at most the number of pairs.
        """
        choices = np.flatnonzero(space.known.item_counts > 0).astype(np.int32)
        users, n_items = self.users, np.int64(len(space.known.items))
        own = np.unique(self.users.astype(np.int64) * n_items + self.items)
        drawn = generator.choice(choices, len(users))
        seen = space.known.seen

        def is_taken(rows: Rows, items: Rows) -> npt.NDArray[np.bool_]:
            keys = rows.astype(np.int64) * n_items + items
            return np.isin(keys, own) | _are_in(seen.indptr, seen.indices, rows, items)

        taken = is_taken(users, drawn)
        for _ in range(_TRIES):
            if not taken.any():
                break
            places = np.flatnonzero(taken)
            drawn[places] = generator.choice(choices, len(places))
            taken[places] = is_taken(users[places], drawn[places])
        return users[~taken], drawn[~taken]


def item_labels(log: Interactions) -> npt.NDArray[np.int64]:
    """Return a category of each item, (n_items,), -1 where it has none.

    Of several the one that the fewest items have, which says most about the item; of equally rare
    ones the first by name.
    """
    of_items = log.item_categories
    sizes = np.bincount(of_items.indices, minlength=max(1, of_items.n_columns))
    order = np.lexsort((of_items.indices, sizes[of_items.indices], of_items.entry_rows))
    labels = np.full(log.n_items, -1, np.int64)
    some = of_items.counts > 0
    labels[some] = of_items.indices[order][of_items.indptr[:-1][some]]
    return labels


def _are_in(indptr: Array, indices: Array, users: Rows, items: Rows) -> npt.NDArray[np.bool_]:
    """Tell which pairs are entries of a matrix whose columns ascend in every row."""
    width = np.int64(indices.max(initial=0)) + 2
    owners = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    keys = owners * width + indices
    wanted = users.astype(np.int64) * width + np.minimum(items, width - 1)
    places = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    found: npt.NDArray[np.bool_] = keys[places] == wanted
    return found
