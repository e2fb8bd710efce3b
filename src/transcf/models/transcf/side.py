"""What TransCF knows beside events: links between users, and categories of items."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.side import adjacency, category_matrix
from transcf.errors import DataError
from transcf.learning import Arrays
from transcf.models.transcf.settings import TransCFSettings
from transcf.storage.tensors import checked


@dataclass(frozen=True, eq=False)
class Side:
    """Links and categories, as far as the settings look at them.

    Attributes:
        friends: Users that each user is linked to, (n_users, n_users), or None.
        categories: Categories of each item, (n_items, n_categories), or None.
        names: What the categories are called, in order.
    """

    friends: Csr | None = None
    categories: Csr | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, log: Interactions, settings: TransCFSettings) -> Side:
        """Take what the settings ask for from a log.

        A log may have links although nobody who is left in it has any: they keep the usual mean.

        Raises:
            DataError: The log does not have it.
        """
        if settings.friends and log.links is None:
            raise _missing("friends", settings.friends, "links between users", "links")
        friends = log.friends if settings.friends else None
        if not settings.category:
            return cls(friends)
        if log.categories is None:
            raise _missing("category", settings.category, "categories of items", "categories")
        return cls(friends, log.item_categories, log.category_names)

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_users: int, n_items: int) -> Side:
        """Read what `arrays` returned; nothing where there is nothing."""
        friends = categories = None
        names: tuple[str, ...] = ()
        if "friend_rows" in arrays:
            friends = _stored(arrays, "friend", n_users, n_users)
        if "category_rows" in arrays:
            names = tuple(json.loads(arrays["category_names"].tobytes()))
            categories = _stored(arrays, "category", n_items, len(names))
        return cls(friends, categories, names)

    def arrays(self) -> Arrays:
        """Return what files hold."""
        arrays: Arrays = {}
        for name, matrix in (("friend", self.friends), ("category", self.categories)):
            if matrix is not None:
                arrays |= {f"{name}_offsets": matrix.indptr, f"{name}_rows": matrix.indices}
        if self.categories is not None:
            text = json.dumps(self.names).encode()
            arrays["category_names"] = np.frombuffer(text, np.uint8)
        return arrays

    def grown(self, sizes: tuple[IdMap, IdMap], old: tuple[Rows, Rows], more: Beside) -> Side:
        """Return the same with new rows, links added, and categories of some items told anew.

        Args:
            sizes: All users and items.
            old: The new row of each user and of each item that there was.
            more: What is added.
        """
        (users, items), friends, categories = sizes, self.friends, self.categories
        names: tuple[str, ...] = ()
        if friends is not None:
            rows, ends = old[0][friends.entry_rows], old[0][friends.indices]
            if more.links is not None:
                added = (users.rows(more.links[end]) for end in ("user_id", "friend_id"))
                rows, ends = (np.concatenate(p) for p in zip((rows, ends), added, strict=True))
            friends = adjacency(rows, ends, (len(users), len(users)))
        if categories is not None:
            table = pl.DataFrame(
                {
                    "item_id": items.ids(old[1][categories.entry_rows]),
                    "category": pl.Series(self.names, dtype=pl.String).gather(categories.indices),
                }
            )
            if more.categories is not None:
                told = pl.col("item_id").is_in(more.categories["item_id"].implode())
                table = pl.concat([table.filter(~told), more.categories])
            categories, names = category_matrix(items, table)
        return Side(friends, categories, names)


@dataclass(frozen=True)
class Beside:
    """Tables `user_id, friend_id` and `item_id, category` of a log, or None."""

    links: pl.DataFrame | None = None
    categories: pl.DataFrame | None = None


def _stored(arrays: Arrays, name: str, n_rows: int, n_columns: int) -> Csr:
    """Read one matrix, of which nothing is believed."""
    offsets = checked(arrays, f"{name}_offsets", np.int64, (n_rows + 1,))
    columns = checked(arrays, f"{name}_rows", np.int32, (int(offsets[-1]),))
    fits = offsets[0] == 0 and (np.diff(offsets) >= 0).all()
    if not fits or (len(columns) and not 0 <= columns.min() <= columns.max() < n_columns):
        raise ValueError(f"{name}_rows are no rows of {n_columns}")
    return Csr(offsets, columns, n_columns)


def _missing(name: str, weight: float, what: str, argument: str) -> DataError:
    return DataError(
        f"TransCF with {name}={weight:g} looks at {what}, and the log has none: give "
        f"read_interactions(..., {argument}=...) (in a shell: --{argument} FILE), or {name}=0."
    )
