"""What every store is given: ids and vectors of who can be ranked and what for.

`score(u, i) = constant_u + vector_u . vector_i`, so the largest inner products are the best
items. Users and items without training interactions are left out, as in `recommend`; an item's
bias, where a model has one, is an entry of its vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import IdMap, Rows
from transcf.errors import EvaluationError, NotFittedError, ParameterError
from transcf.retrieval.scorer import KnowsIds, LinearForm, Scorer

#: Vectors that are handed over at a time.
PIECE = 20_000


class Fitted(Scorer, KnowsIds, Protocol):
    """What exporting needs of a model; every `Recommender` is one."""

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        target: Where to: a folder, a file, or the names of two tables.
        users: Number of users.
        items: Number of items.
        width: Length of the vectors.
    """

    target: str
    users: int
    items: int
    width: int

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Both sides of a model's linear form, with ids.

    Attributes:
        form: The scores as inner products, by rows.
        user_rows: (n,) users with training interactions.
        item_rows: (m,) items with training interactions.
    """

    form: LinearForm
    users: IdMap
    items: IdMap
    user_rows: Rows
    item_rows: Rows

    @classmethod
    def of(cls, model: Fitted) -> Vectors:
        """Take them from a fitted model.

        Raises:
            NotFittedError: The model is not fitted.
            ParameterError: Its score is not an inner product.
            EvaluationError: A vector has NaN or infinite entries.
        """
        if not model.is_fitted:
            raise NotFittedError(f"This {type(model).__name__} is not fitted yet: call fit first.")
        form = model.linear_form()
        if form is None:
            raise ParameterError(
                f"{model.name} has no vectors to export: its score is not an inner product; "
                "use its `recommend`, or a model such as TransCF."
            )
        vectors = cls(
            form,
            model.users_,
            model.items_,
            np.flatnonzero(model.seen_.counts > 0).astype(np.int32),
            np.flatnonzero(model.rankable).astype(np.int32),
        )
        vectors._check_finite(model.name)
        return vectors

    @property
    def width(self) -> int:
        """Length of the vectors."""
        return int(self.form.item_vectors.shape[1])

    def summary(self, target: object) -> Exported:
        """Say what was written where."""
        return Exported(str(target), len(self.user_rows), len(self.item_rows), self.width)

    def user_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `user_id, vector, constant`."""
        for rows in _pieces(self.user_rows):
            constants = pl.Series("constant", self.form.user_constants[rows])
            yield _table("user_id", self.users, self.form.user_vectors, rows).with_columns(
                constants
            )

    def item_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `item_id, vector`."""
        for rows in _pieces(self.item_rows):
            yield _table("item_id", self.items, self.form.item_vectors, rows)

    def _check_finite(self, name: str) -> None:
        form = self.form
        parts = (
            (form.user_vectors, self.user_rows),
            (form.item_vectors, self.item_rows),
            (form.user_constants, self.user_rows),
        )
        for array, rows in parts:
            if not all(np.isfinite(array[some]).all() for some in _pieces(rows)):
                raise EvaluationError(
                    f"{name} has NaN or infinite entries in its vectors and is not exported: "
                    "check that its training converged."
                )


def _pieces(rows: Rows) -> Iterator[Rows]:
    """Cut rows into pieces; no rows are one empty piece, so that tables exist."""
    for start in range(0, max(1, len(rows)), PIECE):
        yield rows[start : start + PIECE]


def _table(name: str, ids: IdMap, vectors: npt.NDArray[np.float32], rows: Rows) -> pl.DataFrame:
    width = vectors.shape[1]
    return pl.DataFrame(
        {
            name: ids.ids(rows),
            "vector": pl.Series(vectors[rows], dtype=pl.Array(pl.Float32, width)),
        }
    )
